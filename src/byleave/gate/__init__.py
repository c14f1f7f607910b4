"""The gate: pure decisions about calls, made twice, on the server and again on the user's machine.

`Gate.judge` answers for one call, `parse_policy` reads its owner's rules; `mask_*` takes secrets out of what is stored
and shown; `safe_text`, `describe` and `shown_params` make what people see. Nothing here opens anything but the gate's
own packaged tables.
"""

from .commands.understood import UNKNOWN_COMMAND, UnderstoodCommand
from .commands.validator import DEFAULT_COMMANDS, CommandValidator, understand
from .gate import Gate, GateRules, Judgement, RiskAssessor, ToolValidator
from .names import (
    NameGlobs,
    asks_for_secrets,
    protected_name,
    question_cover,
    secret_globs,
    secret_name,
    trusted_globs,
    trusted_name,
)
from .paths import PathFinding, check_path
from .policy.policy import (
    NO_POLICY,
    Action,
    LayerPolicy,
    Policy,
    PolicyError,
    PolicyOpinion,
    Rule,
    declared_layers,
    parse_policy,
)
from .text.render import call_lines, describe, full_text, safe_text
from .text.secrets import (
    MASK_PREFIX,
    WITHHELD,
    MaskedStream,
    cover_inert,
    cover_key,
    mask_across_lines,
    mask_start,
    mask_text,
    mask_value,
    may_be_part,
    shown_params,
)

__all__ = [
    "DEFAULT_COMMANDS",
    "MASK_PREFIX",
    "NO_POLICY",
    "UNKNOWN_COMMAND",
    "WITHHELD",
    "Action",
    "CommandValidator",
    "Gate",
    "GateRules",
    "Judgement",
    "LayerPolicy",
    "MaskedStream",
    "NameGlobs",
    "PathFinding",
    "Policy",
    "PolicyError",
    "PolicyOpinion",
    "RiskAssessor",
    "Rule",
    "ToolValidator",
    "UnderstoodCommand",
    "asks_for_secrets",
    "call_lines",
    "check_path",
    "cover_inert",
    "cover_key",
    "declared_layers",
    "describe",
    "full_text",
    "mask_across_lines",
    "mask_start",
    "mask_text",
    "mask_value",
    "may_be_part",
    "parse_policy",
    "protected_name",
    "question_cover",
    "safe_text",
    "secret_globs",
    "secret_name",
    "shown_params",
    "trusted_globs",
    "trusted_name",
    "understand",
]
