"""Agents from a file: what is read, what is refused, and that a role only ever narrows."""

from collections.abc import Generator
from pathlib import Path

import pytest

from byleave.agents.chat import instructions_for
from byleave.agents.roles import CHAT, Roles, load_roles, parse_roles
from byleave.protocol.errors import ConfigurationError
from byleave.protocol.states import AgentMode, ErrorType, ExecutionStatus, RunState
from byleave.protocol.tools import TOOLS
from byleave.store.chat import Posted
from harness.model_server import ModelServer, by_step, call, open_model_server, say
from harness.room import Room, open_room
from harness.scripted import turns

REVIEWER = """
[agents.reviewer]
description = "Reads and comments."
model = "openai-chat:reviewing"
mode = "sandbox"
tools = ["readFile", "search_files"]
instructions = "Look for mistakes."

[agents.builder]
mode = "full"
projects = ["proj_1"]
"""


def test_without_a_file_there_is_the_chat_agent_alone() -> None:
    assert load_roles(None).all() == (CHAT,)
    assert CHAT.mode is AgentMode.SANDBOX
    assert CHAT.widest_mode is AgentMode.FULL
    assert CHAT.tools == tuple(TOOLS)


def test_roles_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text(REVIEWER)
    chat, reviewer, builder = load_roles(path).all()
    assert chat == CHAT
    assert (reviewer.name, reviewer.model, reviewer.tools) == (
        "reviewer",
        "openai-chat:reviewing",
        ("read_file", "search_files"),
    )
    assert reviewer.narrowed(AgentMode.FULL) is AgentMode.SANDBOX
    assert builder.narrowed(AgentMode.FULL) is AgentMode.FULL
    assert builder.narrowed(AgentMode.SANDBOX) is AgentMode.SANDBOX
    assert builder.description == "builder"
    assert builder.model is None


def test_role_of_some_projects_is_not_in_others() -> None:
    roles = parse_roles(REVIEWER, "agents.toml")
    assert [role.name for role in roles.of("proj_1")] == ["chat", "reviewer", "builder"]
    assert [role.name for role in roles.of("proj_2")] == ["chat", "reviewer"]


def test_chat_agent_can_be_described_anew() -> None:
    [chat] = parse_roles('[agents.chat]\ntools = ["read_file"]\nmode = "sandbox"', "f").all()
    assert chat.tools == ("read_file",)
    assert chat.widest_mode is AgentMode.SANDBOX
    assert chat.description == CHAT.description
    [chat] = parse_roles('[agents.chat]\nmodel = "ollama:x"', "f").all()
    assert chat.widest_mode is AgentMode.FULL


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("[agents.a", "agents.toml: not TOML: ", "[agents.reviewer]"),
        ("[agents.a]\nmode = wild", "(at line 2, ", "[agents.reviewer]"),
        ("[agent.a]", "there is no key 'agent'", "[agents.reviewer]"),
        ("agents = 3", "`agents` is not a table", "[agents.reviewer]"),
        ("[agents]\na = 1", "[agents.a]: this is not a table", "[agents.reviewer]"),
        ('[agents.a]\nmodes = "full"', "[agents.a]: there is no key 'modes'", "description, model, mode, tools"),
        ('[agents.a]\nmode = "wild"', "[agents.a]: `mode` is 'wild'", "`sandbox` or `full`"),
        ("[agents.a]\nmode = true", "[agents.a]: `mode` is not a text", 'mode = "…"'),
        ('[agents.a]\ntools = ["rm"]', "[agents.a]: `tools` names 'rm', which is no tool", "read_file, write_file"),
        ('[agents.a]\ntools = "read_file"', "[agents.a]: `tools` is not a list of texts", 'tools = ["…", "…"]'),
        ("[agents.a]\nprojects = [1]", "[agents.a]: `projects` is not a list of texts", "projects"),
        ('[agents.a]\nmodel = " "', "[agents.a]: `model` is empty", "leave it out"),
        ('[agents."A b"]', "'A b' is no name for an agent", "small letters"),
        ("[agents.code-3fa9c1d20b7e]", "'code-3fa9c1d20b7e' is a name like those", "leave the number out"),
        (f'[agents.a]\ndescription = "{"x" * 301}"', "`description` has 301 characters; at most 300", "shorten"),
        ("\n".join(f"[agents.a{n}]" for n in range(101)), "there are 101 agents; at most 100", ""),
    ],
)
def test_what_is_not_understood_is_refused_with_its_key(text: str, words: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_roles(text, "agents.toml")
    assert words in caught.value.message
    assert caught.value.message.startswith("agents.toml")
    assert hint in (caught.value.hint or "")


def test_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="There is no file of agents"):
        load_roles(tmp_path / "none.toml")
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        load_roles(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        load_roles(tmp_path / "latin.toml")


def test_instructions_teach_only_the_tools_a_role_has() -> None:
    [_, reviewer, _] = parse_roles(REVIEWER, "f").all()
    told = instructions_for(reviewer)
    assert "- read_file:" in told
    assert "- write_file:" not in told
    assert told.endswith("Look for mistakes.")
    assert all(f"- {name}:" in instructions_for(CHAT) for name in TOOLS)
    [none] = parse_roles("[agents.chat]\ntools = []", "f").all()
    assert "no tools here" in instructions_for(none)
    assert Roles().all() == (CHAT,)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Generator[ModelServer]:
    with open_model_server() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        yield server


def agents_file(path: Path, text: str = REVIEWER) -> Path:
    path.write_text(text)
    return path


async def post(room: Room, agent: str, mode: AgentMode = AgentMode.SANDBOX) -> Posted:
    project = room.desk.project.id
    return await room.desk.store.chat.post("alice", project, "go", session_id=None, mode=mode, agent=agent)


async def test_role_works_with_its_own_model_tools_and_name(tmp_path: Path, provider: ModelServer) -> None:
    provider.script = by_step(
        call("read_file", {"path": "a.txt"}), call("execute_command", {"command": "ls"}), say("No mistakes.")
    )
    path = agents_file(tmp_path / "agents.toml")
    async with open_room(tmp_path / "home", tmp_path / "ws", agents=path) as room:
        (room.root / "a.txt").write_text("x")
        await room.worker(turns("not I")).start()
        posted = await post(room, "reviewer")
        run = await room.ended(posted.run_id)
        assert run.agent == "reviewer"
        assert run.to_wire().agent == "reviewer"
        assert await room.answer(posted) == "No mistakes."
        first = provider.requests[0]
        assert (first.model, first.tools) == ("reviewing", ["read_file", "search_files"])
        read, withheld = await room.executions(run.id)
        assert (read.status, read.agent_id) == (ExecutionStatus.COMPLETED, "reviewer")
        # `ls` would run without asking for anybody who has the tool.
        assert (withheld.status, withheld.error_type) == (ExecutionStatus.FAILED, ErrorType.REFUSED)
        assert withheld.error == "The agent 'reviewer' does not have the tool execute_command."
        assert withheld.agent_id == "reviewer"


@pytest.mark.promise("G7")
async def test_role_that_must_ask_asks_whatever_mode_its_run_has(tmp_path: Path) -> None:
    path = agents_file(tmp_path / "agents.toml", '[agents.careful]\nmode = "sandbox"')
    async with open_room(tmp_path / "home", tmp_path / "ws", agents=path) as room:
        wanted = ("write_file", {"path": "a.txt", "content": "x"}, "c1")
        await room.worker(turns([wanted], "done")).start()
        posted = await post(room, "careful", AgentMode.FULL)
        approval = await room.approval()
        assert approval.agent_id == "careful"
        await room.desk.approvals.approve_tool(approval.id, "alice")
        await room.ended(posted.run_id)
        [row] = await room.executions(posted.run_id)
        assert row.mode is AgentMode.SANDBOX


async def test_run_of_an_agent_that_is_gone_ends_in_words(room: Room) -> None:
    await room.worker().start()
    posted = await post(room, "reviewer")
    run = await room.ended(posted.run_id)
    assert (run.state, run.error) == (RunState.FAILED, "This server no longer has the agent 'reviewer'.")


async def test_role_whose_model_cannot_be_used_stops_the_server_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    path = agents_file(tmp_path / "agents.toml")
    async with open_room(tmp_path / "home", tmp_path / "ws", agents=path) as room:
        with pytest.raises(
            ConfigurationError, match="The agent 'reviewer': The model 'openai-chat:reviewing' has no key"
        ):
            room.worker()


# The model that a person chooses


@pytest.mark.promise("U-model")
def test_models_to_choose_are_the_operators_and_a_role_with_its_own_has_none_beside() -> None:
    assert CHAT.models("offline", ("openai-chat:a", "offline", "openai-chat:b")) == [
        "offline",
        "openai-chat:a",
        "openai-chat:b",
    ]
    fixed = parse_roles('[agents.fixed]\nmodel = "openai-chat:own"', "agents.toml").all()[1]
    assert fixed.to_wire("offline", ("openai-chat:a",)).models == ["openai-chat:own"]


async def asked_with(room: Room, model: str | None, *, session_id: str | None = None) -> Posted:
    return await room.desk.store.chat.post(
        "alice",
        room.desk.project.id,
        "go",
        session_id=session_id,
        mode=AgentMode.SANDBOX,
        model=model,
        models=("openai-chat:other",),
    )


@pytest.mark.promise("U-model")
async def test_run_works_with_the_model_its_message_chose_and_the_next_goes_on_with_it(
    tmp_path: Path, provider: ModelServer
) -> None:
    provider.script = [say("I am the other one.")]
    async with open_room(tmp_path / "home", tmp_path / "ws", models=("openai-chat:other",)) as room:
        worker = room.worker(turns("I am the usual one."))
        await worker.start()
        [info] = worker.agents(room.desk.project.id)
        assert info.models[1:] == ["openai-chat:other"]
        first = await asked_with(room, None)
        await room.ended(first.run_id)
        assert await room.answer(first) == "I am the usual one."
        second = await asked_with(room, "openai-chat:other", session_id=first.session_id)
        await room.ended(second.run_id)
        assert await room.answer(second) == "I am the other one."
        third = await asked_with(room, None, session_id=first.session_id)
        await room.ended(third.run_id)
        assert [asked.model for asked in provider.requests] == ["other", "other"]
        models = await room.desk.store.runs.models_of(first.session_id)
        assert models == dict.fromkeys((second.run_id, third.run_id), "openai-chat:other")
        usage = await room.events("chat.usage")
        assert {event["cost_usd"] for event in usage} == {None}, "a server of one's own has no list price"


@pytest.mark.promise("U-model")
async def test_run_whose_model_is_no_longer_offered_ends_in_words_and_spends_nothing(
    tmp_path: Path, provider: ModelServer
) -> None:
    async with open_room(tmp_path / "home", tmp_path / "ws") as room:
        posted = await asked_with(room, "openai-chat:other")
        await room.worker(turns("not I")).start()
        run = await room.ended(posted.run_id)
        assert run.error == "This server no longer offers the model 'openai-chat:other'."
        again = await asked_with(room, None, session_id=posted.session_id)
        assert await room.desk.store.runs.model_of(again.run_id) == "openai-chat:other"
        assert provider.requests == []


async def test_model_of_the_list_that_cannot_be_used_stops_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with open_room(tmp_path / "home", tmp_path / "ws", models=("openai-chat:other",)) as room:
        with pytest.raises(ConfigurationError, match="The model 'openai-chat:other' has no key"):
            room.worker()
