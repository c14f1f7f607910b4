"""Questions at the client: timers, asking one at a time, answers that arrive, and silence that never approves."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from byleave.client.approvals import CLOSED_HERE, TIME_IS_UP, UNCONFIRMED, Answer, ApprovalDesk, Question
from byleave.protocol.approvals import ApprovalRequest, Edit, Inspection, SeenFile
from byleave.protocol.errors import CallerError, ConflictError, RefusedError, UnreachableError
from byleave.protocol.events import ApprovalDecided, ApprovalRequested
from byleave.protocol.grants import GrantRule, GrantTerms, Suggestion
from byleave.protocol.states import AnsweredFrom, ApprovalScope, ApprovalStatus, RiskLevel
from byleave.protocol.wire import now

from .conftest import MakeRequest, RecordingLink

PROJECT = "project_1"


class ScriptedPrompt:
    """Answers as it is told, and records what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.said: list[str] = []
        self.closed: list[str] = []
        self.answers: asyncio.Queue[Answer | None] = asyncio.Queue()
        self.at_once = 0

    async def ask(self, question: Question) -> Answer | None:
        self.asked.append(question.event.approval_id)
        self.at_once += 1
        assert self.at_once == 1
        try:
            typing = asyncio.ensure_future(self.answers.get())
            await asyncio.wait({typing, question.closed}, return_when=asyncio.FIRST_COMPLETED)
            if question.closed.done():
                typing.cancel()
                self.closed.append(question.closed.result())
                return None
            return typing.result()
        finally:
            self.at_once -= 1

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


@pytest.fixture
def prompt() -> ScriptedPrompt:
    return ScriptedPrompt()


@pytest.fixture
async def desk(link: RecordingLink, prompt: ScriptedPrompt) -> AsyncIterator[ApprovalDesk]:
    desk = ApprovalDesk(link, PROJECT, prompt, timeout_seconds=300, tries=3)
    yield desk
    await desk.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def decided(
    approval_id: str, status: ApprovalStatus, by: str | None = "person:bob", where: AnsweredFrom | None = None
) -> ApprovalDecided:
    return ApprovalDecided(
        timestamp=now(),
        approval_id=approval_id,
        tool_ids=[],
        status=status,
        decided_by=by,
        reason=None,
        session_id=None,
        decided_from=where,
    )


@pytest.mark.promise("C4", "X4")
async def test_an_answer_is_posted_with_the_digest_that_was_shown(
    desk: ApprovalDesk, prompt: ScriptedPrompt, link: RecordingLink, request_event: MakeRequest
) -> None:
    desk.request(request_event("approval_1", digest="e" * 64))
    prompt.answers.put_nowait(Answer(allow=True))
    await until(lambda: not desk.pending)
    desk.request(request_event("approval_2"))
    prompt.answers.put_nowait(Answer(allow=False, reason="not now"))
    await until(lambda: not desk.pending)
    assert link.decisions == [("approval_1", "approved", "e" * 64), ("approval_2", "rejected", "not now")]
    assert [past.status for past in desk.history] == ["approved", "rejected"]
    assert prompt.said == ["Allowed by you.", "Denied by you."]
    desk.request(request_event("approval_1"))
    assert desk.pending == []


@pytest.mark.promise("C4")
async def test_questions_come_one_at_a_time_in_order(
    desk: ApprovalDesk, prompt: ScriptedPrompt, request_event: MakeRequest
) -> None:
    for number in (1, 2, 3):
        desk.request(request_event(f"approval_{number}"))
    for _ in range(3):
        prompt.answers.put_nowait(Answer(allow=True))
    await until(lambda: not desk.pending)
    assert prompt.asked == ["approval_1", "approval_2", "approval_3"]


@pytest.mark.promise("C4", "C10")
async def test_silence_ends_a_question_without_an_answer(
    link: RecordingLink, prompt: ScriptedPrompt, request_event: MakeRequest
) -> None:
    desk = ApprovalDesk(link, PROJECT, prompt, timeout_seconds=0.02, tries=3)
    desk.request(request_event("approval_1"))
    desk.request(request_event("approval_2", risk_level=RiskLevel.HIGH))
    await until(lambda: not desk.pending)
    await until(lambda: bool(prompt.closed))
    assert [past.status for past in desk.history] == [None] * 2
    assert prompt.closed[0] == f"{TIME_IS_UP} {CLOSED_HERE}"
    assert "nothing" not in prompt.closed[0]
    assert link.decisions == []
    await desk.close()


@pytest.mark.promise("C4", "C10")
async def test_only_the_server_says_that_nothing_was_run(
    desk: ApprovalDesk, prompt: ScriptedPrompt, request_event: MakeRequest
) -> None:
    event: ApprovalRequested = request_event("approval_1")
    desk.request(event, server_ahead=299.99)
    await until(lambda: bool(prompt.closed))
    desk.request(request_event("approval_2"))
    await until(lambda: len(prompt.asked) == 2)
    desk.decided(decided("approval_2", ApprovalStatus.TIMEOUT, None))
    await until(lambda: len(prompt.closed) == 2)
    assert prompt.closed == [TIME_IS_UP, "Nobody answered in time; nothing was run."]
    assert [past.status for past in desk.history] == [None, ApprovalStatus.TIMEOUT]


@pytest.mark.promise("C4", "C6")
async def test_a_question_is_never_kept_past_the_servers_deadline(
    link: RecordingLink, request_event: MakeRequest
) -> None:
    desk = ApprovalDesk(link, PROJECT, None, timeout_seconds=300, tries=3)
    event: ApprovalRequested = request_event("approval_1")
    assert 298 < desk._seconds(event, 0) <= 300
    assert 98 < desk._seconds(event, 200) <= 100
    high = event.model_copy(update={"risk_level": RiskLevel.HIGH, "timeout_seconds": 600})
    assert 598 < desk._seconds(high, -400) <= 600
    desk.request(event, server_ahead=400)
    await until(lambda: not desk.pending)
    await desk.close()


@pytest.mark.promise("C4")
@pytest.mark.parametrize(
    ("status", "where", "told"),
    [
        (ApprovalStatus.APPROVED, None, "Allowed by bob."),
        (ApprovalStatus.APPROVED, AnsweredFrom.PAGE, "Allowed by bob, in a browser."),
        (ApprovalStatus.REJECTED, AnsweredFrom.PROGRAM, "Denied by bob, elsewhere."),
        (ApprovalStatus.CANCELLED, None, "Changed by bob. The changed call is asked about next."),
    ],
)
async def test_a_question_decided_elsewhere_closes_here_and_the_next_follows(
    desk: ApprovalDesk,
    prompt: ScriptedPrompt,
    link: RecordingLink,
    request_event: MakeRequest,
    status: ApprovalStatus,
    where: AnsweredFrom | None,
    told: str,
) -> None:
    desk.request(request_event("approval_1"))
    desk.request(request_event("approval_2"))
    await until(lambda: prompt.asked == ["approval_1"])
    desk.decided(decided("approval_1", status, where=where))
    await until(lambda: prompt.asked == ["approval_1", "approval_2"])
    assert prompt.closed == [told]
    assert link.decisions == []


async def test_a_withdrawn_question_closes_here(
    desk: ApprovalDesk, prompt: ScriptedPrompt, link: RecordingLink, request_event: MakeRequest
) -> None:
    desk.request(request_event("approval_1"))
    await until(lambda: prompt.asked == ["approval_1"])
    desk.decided(decided("approval_1", ApprovalStatus.CANCELLED).model_copy(update={"decided_by": None}))
    await until(lambda: prompt.closed == ["This question is no longer open."])
    assert link.decisions == []


async def test_a_changed_call_is_asked_about_before_what_came_earlier(
    desk: ApprovalDesk, prompt: ScriptedPrompt, request_event: MakeRequest
) -> None:
    edit = Edit(edited_by="person:bob", asked={"path": "a.txt", "content": "x"})
    desk.request(request_event("approval_1"))
    desk.request(request_event("approval_2"))
    await until(lambda: prompt.asked == ["approval_1"])
    desk.request(request_event("approval_3", edit=edit))
    desk.decided(decided("approval_1", ApprovalStatus.CANCELLED))
    await until(lambda: prompt.asked == ["approval_1", "approval_3"])


@pytest.mark.promise("C5")
async def test_a_decision_is_tried_three_times_then_kept_for_the_next_connection(
    desk: ApprovalDesk, prompt: ScriptedPrompt, link: RecordingLink, request_event: MakeRequest
) -> None:
    link.failures = [UnreachableError("down")] * 3
    desk.request(request_event("approval_1"))
    prompt.answers.put_nowait(Answer(allow=True))
    await until(lambda: bool(prompt.said))
    assert link.decisions == []
    assert len(desk.pending) == 1
    desk.request(request_event("approval_2"))
    await until(lambda: prompt.asked == ["approval_1", "approval_2"])
    desk.resend()
    await until(lambda: len(desk.pending) == 1)
    assert [decision[:2] for decision in link.decisions] == [("approval_1", "approved")]


@pytest.mark.promise("C5")
async def test_a_kept_decision_whose_question_ended_is_not_posted(
    desk: ApprovalDesk, prompt: ScriptedPrompt, link: RecordingLink, request_event: MakeRequest
) -> None:
    link.failures = [UnreachableError("down")]
    desk.request(request_event("approval_1"))
    prompt.answers.put_nowait(Answer(allow=True))
    await until(lambda: not link.failures)
    desk.decided(decided("approval_1", ApprovalStatus.REJECTED))
    await until(lambda: desk._asker is None)
    assert link.decisions == []


@pytest.mark.promise("C5")
async def test_a_kept_decision_is_also_tried_while_the_stream_stays_up(
    desk: ApprovalDesk,
    prompt: ScriptedPrompt,
    link: RecordingLink,
    request_event: MakeRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("byleave.client.approvals.TRY_AGAIN_SECONDS", 0.01)
    link.failures = [UnreachableError("down")] * 6
    desk.request(request_event("approval_1"))
    prompt.answers.put_nowait(Answer(allow=True))
    await until(lambda: not desk.pending)
    assert [decision[:2] for decision in link.decisions] == [("approval_1", "approved")]
    assert prompt.said == ["The server cannot be reached; your answer is sent when it can.", "Allowed by you."]


@pytest.mark.promise("C5")
@pytest.mark.parametrize("failures", [1, 3])
@pytest.mark.parametrize(
    ("ended", "told"),
    [
        (lambda desk: desk.decided(decided("approval_1", ApprovalStatus.REJECTED)), "Denied by bob."),
        (lambda desk: desk.decided(decided("approval_1", ApprovalStatus.CANCELLED, None)), UNCONFIRMED),
        (lambda desk: desk.settle([], known=desk.pending), UNCONFIRMED),
        (lambda desk: desk._expire("approval_1"), UNCONFIRMED),
    ],
)
async def test_a_person_hears_of_an_answer_that_did_not_arrive(
    desk: ApprovalDesk,
    prompt: ScriptedPrompt,
    link: RecordingLink,
    request_event: MakeRequest,
    failures: int,
    ended: Callable[[ApprovalDesk], None],
    told: str,
) -> None:
    """While it is tried again, and when it is kept."""
    link.failures = [UnreachableError("down")] * failures
    desk.request(request_event("approval_1"))
    prompt.answers.put_nowait(Answer(allow=True))
    await until(lambda: not link.failures and (failures == 1 or bool(prompt.said)))
    ended(desk)
    await until(lambda: desk._asker is None)
    assert prompt.said[-1] == told
    assert len(prompt.said) == (1 if failures == 1 else 2)
    assert link.decisions == []


@pytest.mark.promise("C5")
@pytest.mark.parametrize("failures", [1, 3])
async def test_a_closing_client_says_that_an_answer_did_not_arrive(
    desk: ApprovalDesk, prompt: ScriptedPrompt, link: RecordingLink, request_event: MakeRequest, failures: int
) -> None:
    link.failures = [UnreachableError("down")] * failures
    desk.request(request_event("approval_1"))
    prompt.answers.put_nowait(Answer(allow=True))
    await until(lambda: not link.failures and (failures == 1 or bool(prompt.said)))
    await desk.close()
    assert prompt.said[-1] == UNCONFIRMED


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConflictError("Somebody was faster.", state="rejected"), ApprovalStatus.REJECTED),
        (ConflictError("It was withdrawn.", state="cancelled"), ApprovalStatus.CANCELLED),
        (ConflictError("It ran out of time.", state="TIMEOUT"), ApprovalStatus.TIMEOUT),
        (CallerError("Another digest waits."), ApprovalStatus.CANCELLED),
    ],
)
async def test_an_answer_too_late_is_told_what_holds(
    desk: ApprovalDesk,
    prompt: ScriptedPrompt,
    link: RecordingLink,
    request_event: MakeRequest,
    error: Exception,
    status: ApprovalStatus,
) -> None:
    link.failures = [error]
    desk.request(request_event("approval_1"))
    prompt.answers.put_nowait(Answer(allow=True))
    await until(lambda: not desk.pending)
    assert [past.status for past in desk.history] == [status]
    assert desk.history[0].decided_by == ("somebody faster" if status is ApprovalStatus.REJECTED else None)
    assert len(prompt.said) == 1


@pytest.mark.promise("C4", "G8")
@pytest.mark.parametrize("state", ["full", "pending", "unknown", ""])
async def test_a_question_that_still_waits_is_asked_again(
    desk: ApprovalDesk, prompt: ScriptedPrompt, link: RecordingLink, request_event: MakeRequest, state: str
) -> None:
    link.failures = [ConflictError("This session has 200 grants already.", state=state, hint="Revoke some.")]
    desk.request(request_event("approval_1"))
    prompt.answers.put_nowait(Answer(allow=True, scope=ApprovalScope.CLASS, terms=GrantTerms(rule=SRC)))
    await until(lambda: prompt.asked == ["approval_1", "approval_1"])
    assert len(prompt.said) == 1
    assert prompt.said[0].startswith("Your answer was not taken: This session has 200 grants already.")
    assert desk.history == []
    prompt.answers.put_nowait(Answer(allow=True))
    await until(lambda: not desk.pending)
    assert [decision[:2] for decision in link.decisions] == [("approval_1", "approved")]


async def test_an_answer_carries_the_calls_that_were_shown_and_later_ones_are_shown_first(
    desk: ApprovalDesk, prompt: ScriptedPrompt, link: RecordingLink, request_event: MakeRequest
) -> None:
    asked = request_event("approval_1")
    link.failures = [ConflictError("2 identical calls wait for this answer now.", state="pending")]
    desk.request(asked)
    await until(lambda: prompt.asked == ["approval_1"])
    desk.request(asked.model_copy(update={"tool_id": "exec_2", "calls": 2}))
    prompt.answers.put_nowait(Answer(allow=True))
    await until(lambda: prompt.asked == ["approval_1", "approval_1"])
    prompt.answers.put_nowait(Answer(allow=True))
    await until(lambda: not desk.pending)
    assert [body.calls for body in link.bodies] == [1, 2]


async def test_a_token_that_may_not_approve_leaves_the_question_open(
    desk: ApprovalDesk, prompt: ScriptedPrompt, link: RecordingLink, request_event: MakeRequest
) -> None:
    link.failures = [RefusedError("The token has no scope `approve`.")]
    desk.request(request_event("approval_1"))
    prompt.answers.put_nowait(Answer(allow=True))
    await until(lambda: bool(prompt.said))
    assert "no scope" in prompt.said[0]
    assert len(desk.pending) == 1
    desk.resend()
    assert link.decisions == []


@pytest.mark.promise("C8")
async def test_no_answer_and_closing_post_nothing(
    desk: ApprovalDesk, prompt: ScriptedPrompt, link: RecordingLink, request_event: MakeRequest
) -> None:
    desk.request(request_event("approval_1"))
    prompt.answers.put_nowait(None)
    desk.request(request_event("approval_2"))
    await until(lambda: len(prompt.asked) == 2)
    await desk.close()
    assert desk.pending == []
    assert [past.status for past in desk.history] == [None] * 2
    assert desk._pending == {}
    assert link.decisions == []


@pytest.mark.promise("C8")
async def test_a_closing_client_says_that_others_may_still_answer(
    desk: ApprovalDesk, prompt: ScriptedPrompt, request_event: MakeRequest
) -> None:
    desk.request(request_event("approval_1"))
    await until(lambda: bool(prompt.asked))
    closed = next(iter(desk._pending.values())).question.closed
    await desk.close()
    assert closed.result() == CLOSED_HERE


async def test_the_servers_list_is_the_truth(
    link: RecordingLink, request_event: MakeRequest, prompt: ScriptedPrompt
) -> None:
    desk = ApprovalDesk(link, PROJECT, prompt, timeout_seconds=300, tries=3)
    desk.request(request_event("approval_1"))
    seen = Inspection(files=[SeenFile(path="x.py", sha256="a" * 64)])
    offered = [Suggestion(rule=SRC, text="Write below src.", widest="All of it.")]
    event = request_event("approval_2", inspection=seen, suggestions=offered)
    listed = ApprovalRequest(
        id="approval_2",
        user_id="alice",
        project_id=PROJECT,
        tool_ids=["exec_2"],
        status=ApprovalStatus.PENDING,
        created_at=event.timestamp,
        **event.model_dump(
            include={
                "session_id",
                "agent_id",
                "tool_name",
                "tool_params",
                "digest",
                "risk_level",
                "findings",
                "network",
                "description",
                "timeout_seconds",
                "deadline",
                "inspection",
                "suggestions",
            }
        ),
    )
    others = [
        listed.model_copy(update={"id": "approval_3", "project_id": "project_2"}),
        listed.model_copy(update={"id": "approval_4", "status": ApprovalStatus.APPROVED}),
        listed.model_copy(update={"id": "approval_5", "tool_ids": []}),
    ]
    known = desk.pending
    desk.request(request_event("approval_newer"))
    desk.settle([listed, *others], known=known)
    assert [(waiting.approval_id, waiting.tool_id) for waiting in desk.pending] == [
        ("approval_newer", "exec_1"),
        ("approval_2", "exec_2"),
        ("approval_5", ""),
    ]
    assert [past.approval_id for past in desk.history] == ["approval_1"]
    assert (desk.pending[1].inspection, desk.pending[1].suggestions) == (seen, offered)
    await desk.close()


async def test_without_a_prompt_nobody_is_asked(link: RecordingLink, request_event: MakeRequest) -> None:
    desk = ApprovalDesk(link, PROJECT, None, timeout_seconds=300, tries=1)
    desk.request(request_event("approval_1"))
    assert len(desk.pending) == 1
    desk._say("nobody hears this")
    await desk.close()
    assert link.decisions == []


SRC = GrantRule(tool="write_file", paths=("src/**",))


@pytest.mark.promise("G8")
async def test_a_grant_is_asked_for_with_the_answer_and_said(
    desk: ApprovalDesk, prompt: ScriptedPrompt, link: RecordingLink, request_event: MakeRequest
) -> None:
    link.released = ["exec_7", "exec_8"]
    terms = GrantTerms(rule=SRC, expires_in_seconds=1800, max_uses=5)
    desk.request(request_event("approval_1", digest="e" * 64))
    prompt.answers.put_nowait(Answer(allow=True, scope=ApprovalScope.CLASS, terms=terms))
    await until(lambda: len(prompt.said) == 2)
    [body] = link.granted
    assert (body.scope, body.terms, body.digest) == (ApprovalScope.CLASS, terms, "e" * 64)
    for told in (
        "Write text files below 'src'",
        "at most 5 times",
        "30 minutes",
        "2 calls that waited",
        "byleave grants",
    ):
        assert told in prompt.said[1]


@pytest.mark.promise("G8")
async def test_everything_in_a_session_is_said_too(
    desk: ApprovalDesk, prompt: ScriptedPrompt, link: RecordingLink, request_event: MakeRequest
) -> None:
    link.released = ["exec_7"]
    desk.request(request_event("approval_1"))
    terms = GrantTerms(expires_in_seconds=3600, warned=True)
    prompt.answers.put_nowait(Answer(allow=True, scope=ApprovalScope.SESSION, terms=terms))
    await until(lambda: len(prompt.said) == 2)
    assert "everything that does not always ask" in prompt.said[1]
    assert "1 call that waited" in prompt.said[1]


@pytest.mark.promise("G8")
async def test_a_grant_that_may_not_be_saved_puts_the_question_again(
    desk: ApprovalDesk, prompt: ScriptedPrompt, link: RecordingLink, request_event: MakeRequest
) -> None:
    link.failures = [CallerError("It would cover every write.", hint="Narrow it.")]
    desk.request(request_event("approval_1"))
    prompt.answers.put_nowait(Answer(allow=True, scope=ApprovalScope.CLASS, terms=GrantTerms(rule=SRC)))
    await until(lambda: prompt.asked == ["approval_1", "approval_1"])
    assert "It would cover every write." in prompt.said[0]
    assert link.decisions == []
    prompt.answers.put_nowait(Answer(allow=True))
    await until(lambda: not desk.pending)
    assert [decision[:2] for decision in link.decisions] == [("approval_1", "approved")]


@pytest.mark.promise("G8")
async def test_a_kept_grant_that_may_not_be_saved_puts_the_question_again(
    desk: ApprovalDesk, prompt: ScriptedPrompt, link: RecordingLink, request_event: MakeRequest
) -> None:
    link.failures = [*[UnreachableError("down")] * 3, CallerError("It would cover every write.")]
    desk.request(request_event("approval_1"))
    prompt.answers.put_nowait(Answer(allow=True, scope=ApprovalScope.CLASS, terms=GrantTerms(rule=SRC)))
    await until(lambda: desk._asker is None and len(prompt.said) == 1)
    desk.resend()
    await until(lambda: prompt.asked == ["approval_1", "approval_1"])
    assert link.decisions == []


@pytest.mark.promise("G8")
async def test_a_question_released_by_a_grant_says_by_which(
    desk: ApprovalDesk, prompt: ScriptedPrompt, request_event: MakeRequest
) -> None:
    desk.request(request_event("approval_1"))
    await until(lambda: prompt.asked == ["approval_1"])
    desk.decided(decided("approval_1", ApprovalStatus.APPROVED, "grant:grant_1"))
    await until(lambda: bool(prompt.closed))
    assert prompt.closed == ["Allowed by grant grant_1."]


async def test_a_question_can_try_a_rule_and_show_the_whole_call(
    link: RecordingLink, request_event: MakeRequest
) -> None:
    asked: list[Question] = []

    class Looking(ScriptedPrompt):
        async def ask(self, question: Question) -> Answer | None:
            asked.append(question)
            return None

    desk = ApprovalDesk(link, PROJECT, Looking(), timeout_seconds=300, tries=3)
    desk.request(request_event("approval_1"))
    await until(lambda: bool(asked))
    [question] = asked
    assert question.preview is not None
    assert question.whole is not None
    assert (await question.preview(SRC)).sentence.startswith("It would have covered")
    assert link.tried == [SRC]
    for reveal, text in ((False, "all of approval_1, masked"), (True, "all of approval_1")):
        assert await question.whole(reveal) == text
    await desk.close()
