"""JSON Schema of all wire models; other languages generate their types from it.

Pure: models in, a dictionary out; `scripts/schema.py` writes the files. Sent models are described as serialized (every
field present), received ones as validated (fields with defaults optional). Titles that only repeat a field's name are
dropped, since generators would make a type of each. Field descriptions are the strings below the fields. They are read
from the source here, because every process builds the models and hardly any describes them.
"""

import ast
import inspect
import textwrap
from enum import StrEnum
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from . import (
    approvals,
    changes,
    chat,
    conversations,
    engine,
    errors,
    events,
    executions,
    grants,
    notices,
    overview,
    sign_in,
    states,
    tools,
    verdicts,
)
from .wire import JsonObject, WireModel

Kind = TypeVar("Kind")

MODULES: tuple[ModuleType, ...] = (
    states,
    verdicts,
    tools,
    grants,
    approvals,
    changes,
    executions,
    chat,
    conversations,
    overview,
    sign_in,
    notices,
    engine,
    events,
    errors,
)

UNIONS: dict[str, tuple[Any, JsonSchemaMode]] = {
    "FeedEvent": (events.FeedEvent, "serialization"),
    "ResultReport": (executions.ResultReport, "validation"),
}

RECEIVED: frozenset[type[WireModel]] = frozenset(
    {
        approvals.ApproveBody,
        approvals.EditBody,
        approvals.ConfirmBody,
        approvals.RejectBody,
        changes.ShownChange,
        changes.UndoBody,
        changes.SessionUndoPlan,
        changes.SessionUndoReport,
        changes.CallUndo,
        changes.UndoPlan,
        changes.UndoReport,
        chat.MessageBody,
        chat.ProjectBody,
        conversations.SessionTitle,
        *(params for params, _ in engine.REQUESTS.values()),
        engine.WorkspaceSettings,
        errors.Problem,
        sign_in.ExchangeBody,
        sign_in.ProofBody,
        executions.CompletedReport,
        executions.ExecuteRequest,
        executions.FailedReport,
        executions.OutputChunk,
        executions.QueueReport,
        executions.ReportOf,
        executions.ResultBatch,
        grants.GrantPreviewBody,
        grants.GrantRule,
        grants.GrantTerms,
        approvals.Inspection,
        approvals.SeenFile,
        overview.CheckBody,
        overview.PolicyDeclaration,
        overview.PolicyText,
        notices.PushDeviceBody,
        *(spec.params for spec in tools.TOOLS.values()),
    }
)
"""Models sent by a client or an agent, and a problem, which leaves out empty fields; all others are sent whole."""

NOT_ON_THE_WIRE: frozenset[type[WireModel]] = frozenset({WireModel, events.Event, tools.ToolParams})


def _defined(kind: type[Kind]) -> dict[str, type[Kind]]:
    """Return the subclasses of a class in the protocol, by name."""
    values = [value for module in MODULES for value in vars(module).values()]
    found = {value.__name__: value for value in values if isinstance(value, type) and issubclass(value, kind)}
    return dict(sorted(found.items()))


def wire_words() -> dict[str, type[WireModel]]:
    """Return all wire models by name."""
    return {name: model for name, model in _defined(WireModel).items() if model not in NOT_ON_THE_WIRE}


def wire_enums() -> dict[str, type[StrEnum]]:
    """Return all enums of the protocol by name."""
    return {name: enum for name, enum in _defined(StrEnum).items() if len(enum)}


def mode_of(model: type[WireModel]) -> Literal["validation", "serialization"]:
    return "validation" if model in RECEIVED else "serialization"


def wire_schema() -> JsonObject:
    """Return the JSON Schema 2020-12 of all wire models, under `$defs` by name."""
    wanted: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        *((name, mode_of(model), TypeAdapter[Any](model)) for name, model in wire_words().items()),
        *((name, mode, TypeAdapter[Any](union)) for name, (union, mode) in UNIONS.items()),
        *((name, "serialization", TypeAdapter[Any](enum)) for name, enum in wire_enums().items()),
    ]
    by_name, document = TypeAdapter.json_schemas(wanted)
    definitions: JsonObject = document["$defs"]
    for name, model in wire_words().items():
        describe(definitions[name], model)
    for name, (_, mode) in UNIONS.items():
        definitions[name] = by_name[(name, mode)]
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": "Byleave",
        "description": "Every word that travels between agent, server and client. Generated: do not edit.",
        "$defs": {name: _without_field_titles(definitions[name]) for name in sorted(definitions)},
    }


def describe(schema: JsonObject, model: type[BaseModel]) -> None:
    """Add the strings below the fields as descriptions, unless a field has its own."""
    texts = field_texts(model)
    properties: dict[str, JsonObject] = schema.get("properties", {})
    for name, field in properties.items():
        if name in texts and model.model_fields[name].description is None:
            # Alphabetical, as Pydantic writes them.
            properties[name] = dict(sorted({**field, "description": texts[name]}.items()))


@cache
def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """Return the strings below the fields of a model and its bases."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base is not BaseModel and issubclass(base, BaseModel):
            texts |= _texts_in(textwrap.dedent(inspect.getsource(base)))
    return texts


def _texts_in(source: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    body = cast(ast.ClassDef, ast.parse(source).body[0]).body
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            value = below.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                texts[field.target.id] = inspect.cleandoc(value.value)
    return texts


def _without_field_titles(schema: Any) -> Any:
    """Drop the titles of fields ("Tool Id"); keep those of models, which are their names."""
    if isinstance(schema, list):
        return [_without_field_titles(item) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    cleaned: JsonObject = {}
    for key, value in cast(JsonObject, schema).items():
        if key == "properties":
            cleaned[key] = {name: _field(field) for name, field in value.items()}
        else:
            cleaned[key] = _without_field_titles(value)
    return cleaned


def _field(schema: JsonObject) -> JsonObject:
    return {key: _without_field_titles(value) for key, value in schema.items() if key != "title"}
