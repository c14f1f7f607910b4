"""The gate: pure decisions about calls, made twice, on the server and again on the user's machine.

`Gate.judge` answers for one call; `mask_*` takes secrets out of what is stored and shown; `safe_text`, `describe`
and `shown_params` make what people see. Nothing here opens anything but the gate's own packaged tables.
"""

from .commands import DEFAULT_COMMANDS, CommandFindings, CommandValidator
from .gate import Gate, GateRules, Judgement
from .names import SecretGlobs, protected_name, secret_globs, secret_name, trusted_name
from .paths import PathFinding, check_path
from .render import describe, safe_text, shown_params
from .risk import RiskAssessor
from .secrets import MASK_PREFIX, mask_text, mask_value

__all__ = [
    "DEFAULT_COMMANDS",
    "MASK_PREFIX",
    "CommandFindings",
    "CommandValidator",
    "Gate",
    "GateRules",
    "Judgement",
    "PathFinding",
    "RiskAssessor",
    "SecretGlobs",
    "check_path",
    "describe",
    "mask_text",
    "mask_value",
    "protected_name",
    "safe_text",
    "secret_globs",
    "secret_name",
    "shown_params",
    "trusted_name",
]
