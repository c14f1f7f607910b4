"""Masking: what is taken for a secret, what is not, that it is linear, and that it fails closed."""

import itertools
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import byleave.gate.text.secrets as secrets_module
from byleave.gate import MASK_PREFIX, Gate, cover_key, describe, mask_start, mask_text, mask_value, shown_params
from byleave.gate.text.render import full_text, quote
from byleave.gate.text.secrets import Cover, MaskedStream, cover, cover_inert, mask_arguments
from byleave.protocol.approvals import call_digest
from harness.json_values import Json

pytestmark = pytest.mark.promise("S")

GATE = Gate()
LONG = "a1B2c3D4e5F6g7H8"
SECRETS = {
    "aws key id": "AKIAIOSFODNN7EXAMPLE",
    "aws temporary": "ASIAIOSFODNN7EXAMPLE",
    "aws secret": "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "github classic": "ghp_" + LONG * 3,
    "github fine": "github_pat_" + LONG * 2 + "_" + LONG * 2,
    "gitlab": "glpat-" + LONG + "xyzw",
    "slack bot": "xoxb-123456789012-" + LONG,
    "slack webhook": "https://hooks.slack.com/services/T0/B0/" + LONG * 2,
    "stripe": "sk_live_" + LONG * 2,
    "stripe webhook": "whsec_" + LONG * 2,
    "openai": "sk-proj-" + LONG * 3,
    "openai old": "sk-" + LONG * 3,
    "anthropic": "sk-ant-api03-" + LONG * 3,
    "google": "AIza" + "b" * 35,
    "google oauth": "ya29." + LONG * 3,
    "npm": "npm_" + "a1B2c3D4e5F6" * 3,
    "pypi": "pypi-AgEIcHlwaS5vcmc" + LONG * 4,
    "huggingface": "hf_" + "aB" * 17,
    "sendgrid": "SG." + LONG + "." + LONG * 2,
    "telegram": "123456789:AA" + "b" * 33,
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\n" + (LONG * 4 + "\n") * 3 + "abc=\n-----END RSA PRIVATE KEY-----",
    "pem cut off": "-----BEGIN PRIVATE KEY-----\n" + LONG * 4,
    "pem escaped": '"-----BEGIN PRIVATE KEY-----\\n' + LONG * 4 + '\\n-----END PRIVATE KEY-----"',
    "openssh": "-----BEGIN OPENSSH PRIVATE KEY-----\n" + (LONG * 4 + "\n") * 2 + "-----END OPENSSH PRIVATE KEY-----",
    "url": "postgres://bob:hunter2@db.example.org/x",
    "url token": "https://x-access-token:" + LONG + "@example.org/r.git",
    "env": "DB_PASSWORD=supersecret",
    "env export": "export API_KEY=abcdef123456",
    "env key": "STRIPE_KEY=abcdef123456",
    "env long name": "GITHUB_TOKEN_FOR_CI=abcdefgh1234",
    "ini": "password=correcthorse",
    "yaml": "password: hunter2",
    "json": '"password": "hunter2"',
    "json in json": '"{\\"password\\": \\"hunter2x\\"}"',
    "javascript": "apiKey: 'abcd1234efgh'",
    "python": 'client_secret = "abc$def!"',
    "ruby": "secret_key => 'abcd1234efgh'",
    "azure": "AccountKey=abc123def456ghi789jkl==;x",
    "npmrc": "//registry.example.org/:_authToken=abc-def-123-ghi",
    "npmrc basic": "_auth=dXNlcjpwYXNzd29yZA==",
    "netrc": "machine example.org login bob password s3cr3t",
    "netrc lines": "machine example.org\n  login bob\n  password s3cr3t",
    "basic": "Authorization: Basic dXNlcjpwYXNz",
    "bearer header": '"Authorization": "Bearer abcdefghijklmnop"',
    "bearer": "curl -H 'X: bearer abcdefghij0123456789'",
}
ORDINARY = {
    "call": "token = get_token()",
    "uuid": "id: 550e8400-e29b-41d4-a716-446655440000",
    "git sha": "commit 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12",
    "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "integrity": '"integrity": "sha512-abcDEF123+/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=="',
    "lock": '"resolved": "https://registry.example.org/js-tokens/-/js-tokens-4.0.0.tgz",\n"js-tokens": "^4.0.0"',
    "type ts": "password: string;",
    "type py": "password: str",
    "type class": "token: Token2",
    "optional": "secret: SecretStr | None = None",
    "token type": "token_type: bearer",
    "limit": "max_tokens: 4096",
    "model": 'tokenizer = "bert-base-uncased"',
    "css class": ".sk-loading-container-with-long-name-here { color: #aabbcc }",
    "css variable": "--token-color: #aabbcc11",
    "css font": "@keyframes spin { from: 1 }",
    "lambda": "key = lambda x: x",
    "sort": "sorted(items, key=operator.itemgetter(1))",
    "orm": "primary_key=True",
    "env read js": "apiKey: process.env.API_KEY",
    "env read py": "password = os.environ['X']",
    "keyword": "connect(password=password, token=self.token)",
    "comparison": "if token == 'abc123def':",
    "constant": "KEY_LENGTH=32",
    "url setting": "TOKEN_URL=https://example.org/x1",
    "name setting": "SECRET_NAME=my-secret-1",
    "placeholder": "secret: ${SECRET}",
    "angle": "API_KEY=<your key here>",
    "stars": 'password = "********"',
    "marker": '"-----BEGIN RSA PRIVATE KEY-----" in text and more words follow',
    "html": '<input type="password" name="password" autocomplete="current-password">',
    "react": '<li key="row-1">',
    "attribute": "self.token = token",
    "list": "tokens: list[str] = []",
    "port": "http://localhost:8080/x@y",
    "ssh remote": "git@github.com:x/y.git",
    "generated": "const secretKey = generateKey(32)",
    "public key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIabc bob@example.org",
    "prose": "The password must have eight characters; a token: see below.",
    "url template": "postgres://${USER}:${PASSWORD}@db/x",
    "import": "from tokens import Token, secret_name",
    "pass of a test": 'pass: "all", pass: "failed"\npass: 98.5%\npw = width\n--- PASS: all (0.1s)\npw=pw, psk: string',
    "path": "SECRET_FILE=/run/secrets/x1",
    "typed names": 'def f(password: str, other: str = "a1b2c3d4e5"): ...',
    "typed default": 'password: str = "" # hunter2x',
    "typed call": "const token: string = read('abc123def')",
    "fallback": "const token = options.token || readToken('abc12345')",
    "sql column": "password varchar(255) NOT NULL, 'x1y2z3a4'",
    "prose of sql": "the library identified by 'name' was identified by Ann in 'part1x'",
    "prose of passwords": "the password 'must not be empty', a password \"is needed\"",
    "end of a key": 'if line == "-----END PRIVATE KEY-----":',
}


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS.keys())
def test_secret_is_masked_and_masking_again_changes_nothing(text: str) -> None:
    masked = mask_text(f"before\n{text}\n; after")
    assert MASK_PREFIX in masked
    assert masked.startswith("before\n")
    assert masked.endswith("; after")
    assert mask_text(masked) == masked


@pytest.mark.parametrize("value", ["hunter2x", LONG, "s3cr3t!x"])
@pytest.mark.parametrize(
    "form",
    [
        *(
            "DB_PASSWORD={}",
            "password: {}",
            '"password": "{}"',
            "https://u:{}@h/x",
            "password='{}'",
            "api_token = '{}'",
        ),
        *("[sendemail]\n\tsmtpuser = me\n\tsmtppass = {}\n", "sendemail.smtppass={}", "keypass = {}\n"),
        *('[imap "x"]\n\tuser = me\n\tpass = {}\n', "imap.pass={}"),
        *('db_password: str = "{}"', "let password: string = '{}';", 'password?: "{}"', 'var apiKey string = "{}"'),
        *("secret: Optional[str] = '{}'", 'const SECRET: &str = "{}";', 'char password[] = "{}";'),
        *("process.env.DB_PASSWORD || '{}'", "config.secret ?? '{}'", 'token: SecretStr | None = "{}"'),
        *("ALTER ROLE x WITH PASSWORD '{}';", "create user 'x'@'%' identified by '{}'", "ENV DB_PASSWORD {}"),
        *("sql.Open('mysql', 'root:{}@tcp(127.0.0.1:3306)/db')", "storePassword '{}'", 'keyPassword "{}"'),
    ],
)
def test_the_value_itself_is_gone(form: str, value: str) -> None:
    assert value not in mask_text(form.format(value))


def test_a_mail_password_of_git_is_masked_though_it_is_a_word() -> None:
    assert "correcthorse" not in mask_text("[sendEmail]\n\tsmtpPass = correcthorse\n[imap]\n\tpass = correcthorse\n")


@pytest.mark.parametrize("text", ORDINARY.values(), ids=ORDINARY.keys())
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert mask_text(text) == text


def test_text_without_secrets_is_the_same_object() -> None:
    text = "nothing to see here " * 20
    assert mask_text(text) is text


def test_name_and_quotes_stay_readable() -> None:
    assert mask_text('"password": "hunter2", "x": 1') == '"password": "[masked:password]", "x": 1'
    assert mask_text("postgres://bob:hunter2@db/x") == "postgres://bob:[masked:url-password]@db/x"
    assert mask_text("ghp_" + LONG * 3) == "[masked:github-token]"


def test_letters_that_change_length_with_case_do_not_shift_the_mask() -> None:
    assert mask_text("İİİ password: hunter2") == "İİİ password: [masked:password]"


def test_values_are_masked_at_any_depth_and_by_their_names() -> None:
    value = {"a": [{"password": "x", "api_key": "zzz", "n": 1}], "url": "https://u:pw@h", "ghp_" + LONG * 3: None}
    assert mask_value(value) == {
        "a": [{"password": "[masked:password]", "api_key": "[masked:api_key]", "n": 1}],
        "url": "https://u:[masked:url-password]@h",
        "[masked:github-token]": None,
    }


@pytest.mark.parametrize("value", [None, 1, 1.5, True, "", [], {}, {"max_tokens": 5, "password": ""}, {"token": None}])
def test_values_without_secrets_stay_as_they_are(value: Json) -> None:
    assert mask_value(value) == value


def test_what_is_nested_too_deep_is_withheld() -> None:
    value: Json = "ghp_" + LONG * 3
    for _ in range(5000):
        value = [value]
    assert LONG not in json.dumps(_flattened(mask_value(value)))


def _flattened(value: Json) -> Json:
    while isinstance(value, list) and value:
        value = value[0]
    return value


WRONG = (RecursionError, MemoryError, ValueError, UnicodeError, KeyError)


@pytest.mark.parametrize("part", ["_mask_formats", "mask_named", "whole_characters", "_lower", "_mask_manifest"])
@pytest.mark.parametrize("wrong", WRONG)
def test_text_is_withheld_whatever_part_of_masking_fails(
    part: str, wrong: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise wrong

    text = "kind: Secret\ndata:\n  password: hunter2xyz # é"
    monkeypatch.setattr(secrets_module, part, fail)
    stream = MaskedStream()
    judged = GATE.judge("search_web", {"query": text})
    shown = [
        mask_text(text),
        str(mask_value({"x": [text]})),
        " ".join(mask_arguments(["echo", text])),
        stream.feed(f"{text}\nmore") + stream.end(),
        quote(text),
        describe(judged.tool_name, judged.params, judged.verdict),
        str(shown_params("write_file", {"path": "a.txt", "content": text})),
        str(shown_params("write_file", {"path": "a.txt", "content": f"{text}\n" * 2000})),
        full_text("write_file", {"path": "a.txt", "content": text}),
    ]
    for masked in shown:
        assert "hunter2" not in masked
        assert "withheld]" in masked


@pytest.mark.parametrize(
    "text",
    [
        f"\x1b[01;31m\x1b[K{'ghp_' + LONG * 3}\x1b[m\x1b[K",
        "\x1b[32mpassword\x1b[0m: \x1b[31mhunter2xyz\x1b[0m",
        '\x1b[34;1m"password"\x1b[0m\x1b[1m:\x1b[0m \x1b[32m"hunter2xyz"\x1b[0m',
        "\x9b1mDB_PASSWORD\x9b0m=hunter2xyz",
        "\x1b]8;;x\x07password=hunter2xyz\x1b]8;;\x07",
    ],
)
def test_secret_between_colours_is_masked(text: str) -> None:
    masked = mask_text(text)
    assert MASK_PREFIX in masked
    assert "hunter2" not in masked
    assert LONG not in masked


def test_colours_stay_where_there_is_no_secret() -> None:
    text = "\x1b[32mok\x1b[0m 12 passed"
    assert mask_text(text) is text


SECRET = "ghp_" + LONG * 3
MULTILINE = (
    "one\nmachine h\n  login bob\n  password s3cr3tpw\n"
    f"export TOKEN={SECRET}\n- name: DB_PASSWORD\n  value: hunter2xx\nend"
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, len(MULTILINE)), max_size=8))
def test_secret_is_masked_wherever_a_stream_is_cut(cuts: list[int]) -> None:
    stream = MaskedStream()
    edges = [0, *sorted(cuts), len(MULTILINE)]
    said = "".join(stream.feed(MULTILINE[a:b]) for a, b in itertools.pairwise(edges)) + stream.end()
    assert said == mask_text(MULTILINE)


def test_key_that_comes_line_by_line_is_masked() -> None:
    key = "-----BEGIN PRIVATE KEY-----\n" + (LONG * 4 + "\n") * 20 + "-----END PRIVATE KEY-----\nafter\n"
    stream = MaskedStream()
    said = "".join(stream.feed(f"{line}\n") for line in key.splitlines()) + stream.end()
    assert LONG not in said
    assert said.endswith("after\n")


@pytest.mark.parametrize(
    "unit", ["x", "word ", "password: ", f"token={SECRET} ", "-----BEGIN PRIVATE KEY-----", "a,b;"]
)
def test_what_a_stream_holds_back_is_bounded(unit: str) -> None:
    stream = MaskedStream()
    size = 0
    for _ in range(40):
        size += len(stream.feed(unit * (8192 // len(unit))))
        assert stream.held <= 80 * 1024
    assert LONG not in stream.end()
    assert size > 0


KEY_LINE = "Ab3" + "x" * 61
MANIFEST = f"""apiVersion: v1
kind: Secret
data:
  DATABASE_URL: cG9zdGdyZXM6Ly91OnA0
stringData:
  tls.key: |
    -----BEGIN PRIVATE KEY-----
    {KEY_LINE}
    {KEY_LINE}
    c2hvcnQ=
    -----END PRIVATE KEY-----
type: Opaque
---
kind: ConfigMap
data:
  plain: visible"""
DECORATED = {
    "cat -A": "{line}$",
    "cat -A with CRLF": "{line}^M$",
    "cat -n": "{at:6}\t{line}",
    "grep -n": "{at}:{line}",
    "grep -H": "k8s/all.yaml:{line}",
    "grep -rn": "k8s/my-all.yaml:{at}:{line}",
    "grep -A": "k8s/my-all.yaml-{at}-{line}",
    "grep -Z": "k8s/all.yaml\0{at}:{line}",
    "blank in the path": "my k8s/all one.yaml:{at}:{line}",
    "diff": "< {line}",
    "new in diff": "+{line}",
    "old in diff": "-{line}",
    "comment": "# {line}",
    "slashes": "//{line}",
    "git blame": "{hash} (Ann Lee 2024-01-01 10:00:00 +0000 {at:2}) {line}",
}


@pytest.mark.parametrize("form", DECORATED.values(), ids=DECORATED.keys())
def test_secret_that_other_lines_tell_is_masked_however_lines_are_decorated(form: str) -> None:
    hashes = itertools.cycle(("^3f2a1bc", "77aabb10"))
    text = "\n".join(
        form.format(line=line, at=at, hash=next(hashes)) for at, line in enumerate(MANIFEST.split("\n"), 1)
    )
    masked = mask_text(text)
    assert not any(secret in masked for secret in (KEY_LINE, "cG9zdGdyZXM", "c2hvcnQ="))
    assert masked.count("\n") == text.count("\n")
    assert all(kept in masked for kept in ("Opaque", "DATABASE_URL", "-----END", "plain: visible"))
    assert mask_text(masked) == masked


@pytest.mark.parametrize("form", ["{line}", "{at:6}\t{line}", "notes.md-{at}-{line}", "+{line}", "    {line}"])
def test_the_rest_of_a_key_whose_first_line_was_cut_off_is_masked(form: str) -> None:
    lines = [*(f"{LONG * 4}",) * 5, "c2hvcnQ=", "-----END RSA PRIVATE KEY-----", "after"]
    text = "\n".join(["before " + LONG, "", *(form.format(line=line, at=at) for at, line in enumerate(lines, 1))])
    masked = mask_text(text)
    assert masked.count(LONG) == 1, "only the word before"
    assert "c2hvcnQ=" not in masked
    assert masked.count("\n") == text.count("\n")
    assert "-----END RSA PRIVATE KEY-----" in masked
    assert mask_text(masked) == masked


def test_code_before_the_last_line_of_a_key_stays() -> None:
    code = 'body = "abc" + encodeBase64(pemBody)\nreturn f"{body}\\n-----END PRIVATE KEY-----"\n'
    assert mask_text(code) == code


def test_code_behind_the_first_line_of_a_key_stays() -> None:
    code = """if "-----BEGIN PRIVATE KEY-----" in text:
    return self.load_private_key_from_pem_file(createPrivateKey(text), "src/byleave/gate/text")
"""
    assert mask_text(code) == code


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 30_000), st.integers(1, 2000))
def test_start_of_a_long_text_is_the_start_of_the_whole_masked_one(before: int, most: int) -> None:
    text = "x " * (before // 2) + MULTILINE + " y" * 20_000
    assert mask_start(text, most) == mask_text(text)[:most]


@pytest.mark.parametrize(
    "unit", [f"token={SECRET} ", f"{SECRET}\n", "-----BEGIN PRIVATE KEY-----\n" + (LONG * 4 + "\n") * 400]
)
def test_no_secret_is_left_where_the_start_of_a_text_is_cut(unit: str) -> None:
    for shift in range(0, 300, 7):
        assert LONG not in mask_start("x" * shift + " " + unit * 100, 20_000)


def test_nothing_is_left_of_what_a_stream_drops() -> None:
    stream = MaskedStream()
    assert stream.feed(f"one\n{SECRET[:10]}") == "one\n"
    stream.drop()
    assert stream.end() == ""


@pytest.mark.promise("A")
def test_prompt_shows_the_masked_value_and_the_digest_binds_the_true_one() -> None:
    def call(password: str) -> tuple[str, str, str]:
        params = {"command": "git", "args": ["clone", f"https://bob:{password}@example.org/r.git"], "timeout": 30}
        judged = GATE.judge("execute_command", params)
        assert judged.params is not None
        shown = describe(judged.tool_name, judged.params, judged.verdict)
        return (
            shown,
            str(shown_params("execute_command", judged.params)),
            call_digest("execute_command", judged.params, "p"),
        )

    one, other = call("hunter2xx"), call("hunter3yy")
    assert "hunter" not in one[0] + one[1]
    assert one[:2] == other[:2], "what is shown is the same"
    assert one[2] != other[2], "what is bound is not"


HOSTILE = {
    "jwt starts": "eyJ-",
    "jwt parts": "eyJaaaaaaaa.",
    "keys": "key",
    "key headers": "-----BEGIN PRIVATE KEY-----\n",
    "key bodies": "-----BEGIN PRIVATE KEY-----\n" + "A" * 64 + "\n",
    "key ends": "A" * 64 + "\n-----END PRIVATE KEY-----\n",
    "lines before one end": "A" * 64 + "\nPRIVATE KEY-----\n",
    "types": "password: a[a, ",
    "users": "user identified by ",
    "urls": "://a:",
    "assignments": "token=",
    "one letter": "a",
    "logins": "login ",
    "login words": "login x ",
    "bearers": "bearer a",
    "quotes": "password: '",
    "open quote": "secret='a",
    "prefixes": "sk-",
    "gitlab": "glpat-",
    "blanks": " ",
    "long names": "a_key_",
    "dashes": "-",
    "underscores": "_",
    "commands": "curl -u a:",
    "logins in a row": "docker login -p ",
    "manifests": "kind: Secret\ndata:\n  a: b\n",
    "data blocks": "data:\n ",
    "elements": "<password>a",
    "pairs": 'password", "value": ',
    "dollars": "$6$aaaa$",
    "base64 keys": "LS0tLS1CRUdJTiBQUklWQVRF",
    "jwe": "eyJaaaaaaaa.aaaaaaaaa.",
    "cookies": "Cookie: a=",
    "colons": "a:*:b:c:",
    "settings": "PASSWORD=a",
    "signatures": "?sig=a",
    "putty": "PuTTY-User-Key Private-Lines: 1\nAAAA\n",
    "quotes in values": 'password="\\"',
    "dots": "pat.a.",
    "colours": "\x1b[1m",
    "begun sequences": "\x1b]8;;",
    "begun colours": "\x1b[1",
    "addresses": "https://a:b@c/",
}


@pytest.mark.parametrize("cover", [cover, cover_key, cover_inert])
@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_costs_linear_time(unit: str, cover: Cover) -> None:
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        started = time.process_time()
        mask_text(text, cover)
        return time.process_time() - started

    small = max(min(seconds(50_000) for _ in range(3)), 1e-4)
    large = min(seconds(200_000) for _ in range(2))
    assert large / small < 9, "four times the text may cost about four times as much, never sixteen"


def test_field_whose_name_says_little_is_masked_when_its_value_has_variety() -> None:
    assert mask_value({"pass": "all", "psk": "none"}) == {"pass": "all", "psk": "none"}
    assert mask_value({"pass": "Sup3rS3cret99x"}) == {"pass": "[masked:pass]"}
