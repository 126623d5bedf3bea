// Passes a bundle from the Skills page, where a skill is created, to the page of the skill, where it is pushed.

let pending = null;

export function setPendingBundle(skillId, bundle) {
  pending = { skillId, bundle };
}

/** Returns the bundle for this skill once, else null. */
export function takePendingBundle(skillId) {
  const bundle = pending?.skillId === skillId ? pending.bundle : null;
  pending = null;
  return bundle;
}
