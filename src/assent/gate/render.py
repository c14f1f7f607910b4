"""placeholder"""
from ..protocol.values import JsonObject
from ..protocol.verdicts import Verdict
def safe_text(text: str) -> str:
    return text
def describe(tool_name: str, params: JsonObject, verdict: Verdict) -> str:
    return tool_name
def shown_params(tool_name: str, params: JsonObject) -> JsonObject:
    return params
