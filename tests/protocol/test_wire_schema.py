"""The schema document says of every word what the models say."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from byleave.protocol.events import ChatText
from byleave.protocol.schema import RECEIVED, UNIONS, wire_enums, wire_schema, wire_words
from byleave.protocol.tools import TOOLS

SCHEMA = wire_schema()
DEFINITIONS = SCHEMA["$defs"]


def test_committed_schema_is_fresh() -> None:
    committed = Path(__file__).resolve().parents[2] / "schema" / "byleave.schema.json"
    assert json.loads(committed.read_text(encoding="utf-8")) == SCHEMA, "hint: make schema"


def test_every_word_enum_and_union_is_there_by_its_name() -> None:
    assert set(DEFINITIONS) == {*wire_words(), *wire_enums(), *UNIONS}


@pytest.mark.parametrize("name", sorted(set(DEFINITIONS) - set(UNIONS) - set(wire_enums())))
def test_word_refuses_unknown_fields_and_its_fields_have_no_titles(name: str) -> None:
    definition = DEFINITIONS[name]
    assert definition["additionalProperties"] is False
    assert all("title" not in field for field in definition["properties"].values())


@pytest.mark.parametrize("name", ["byleave.schema.json", "openapi.json"])
def test_bounds_are_written_as_json_schema_has_them(name: str) -> None:
    text = (Path(__file__).resolve().parents[2] / "schema" / name).read_text(encoding="utf-8")
    assert not re.findall(r'"(?:ge|gt|le|lt|multiple_of)":.*', text), "pydantic's words, which nobody else reads"


def test_what_is_sent_has_every_field_and_what_is_received_may_leave_out_defaults() -> None:
    for name, word in wire_words().items():
        required = set(DEFINITIONS[name].get("required", []))
        if word in RECEIVED:
            assert required == {field for field, info in word.model_fields.items() if info.is_required()}
        else:
            assert required == set(word.model_fields)
    assert {spec.params for spec in TOOLS.values()} <= RECEIVED


@pytest.mark.promise("R-events")
def test_event_fits_the_schema() -> None:
    event = ChatText(timestamp="2026-11-15T12:00:00.000Z", session_id="s", run_id="r", text="hi").model_dump()
    jsonschema.validate(event, {**SCHEMA, "$ref": "#/$defs/FeedEvent"})
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**event, "kind": "chat.other"}, {**SCHEMA, "$ref": "#/$defs/FeedEvent"})
