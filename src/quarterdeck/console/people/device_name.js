// How this browser describes itself in the list of devices: "Firefox on Linux".

// The first that matches: most browsers name others, too.
const BROWSERS = [["Edg", "Edge"], ["OPR/", "Opera"], ["Firefox/", "Firefox"], ["FxiOS/", "Firefox"], ["Chrome/", "Chrome"], ["CriOS/", "Chrome"], ["Safari/", "Safari"]];
const SYSTEMS = [["Android", "Android"], ["iPhone", "iPhone"], ["iPad", "iPad"], ["Windows", "Windows"], ["Mac OS X", "macOS"], ["CrOS", "ChromeOS"], ["Linux", "Linux"]];

export function deviceName() {
  const find = (names) => names.find(([mark]) => navigator.userAgent.includes(mark))?.[1];
  return [find(BROWSERS) ?? "Browser", find(SYSTEMS)].filter(Boolean).join(" on ");
}
