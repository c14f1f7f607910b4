// The gate of this client: pure decisions about calls, made again on the user's machine from the same tables as on the
// server. `Gate.judge` answers for one call, `parsePolicy` reads its owner's rules; `mask*` takes secrets out of what
// leaves; `safe*` makes what people see. Only `loadPolicy` opens files: the owner's rules.

export { hiddenIn, hiddenInProse, visible } from "./characters.js";
export { CommandValidator, DEFAULT_COMMANDS } from "./commands.js";
export { type Circumstances, Gate, type GateRules, type Judgement } from "./gate.js";
export { pathFits, pathFitsCarelessly } from "./globs.js";
export { protectedName, type SecretGlobs, secretGlobs, secretName, trustedName } from "./names.js";
export { type Params, toolName } from "./parameters.js";
export { checkPath, type PathFinding, quoted } from "./paths.js";
export { type Action, type Layer, type LayerPolicy, type Mode, NO_POLICY, Policy, Rule } from "./policy.js";
export { type DeclaredLayer, type LoadedPolicy, loadPolicy, type PolicyPlaces } from "./policy_files.js";
export { PolicyError, parsePolicy } from "./policy_text.js";
export { fullText, quote, safeLines, safeText, shownParams } from "./render.js";
export { assessWrite } from "./risk.js";
export { changesWhatItRuns } from "./scripts.js";
export { MASK_PREFIX } from "./secret_formats.js";
export { maskArguments, maskText, maskValue, WITHHELD } from "./secrets.js";
export { MaskedStream } from "./streams.js";
export { alwaysAsks, type Finding, type Level, message, rank, type Understood, type Verdict } from "./verdicts.js";
