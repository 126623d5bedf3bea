import { fill } from "../dom.js";

export async function show(view) {
  fill(view.main, view.title("audit"));
}
