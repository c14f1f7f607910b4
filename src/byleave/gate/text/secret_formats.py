"""Find secrets by their form, by their place, or by the name before them.

By form or place: provider keys, headers, URLs, key blocks, command lines. Every rule has a needle, a plain text that
must occur before its pattern is tried, and a pattern that is bounded or anchored on a literal: text without secrets
costs a few plain searches, hostile text linear time. A rule must never fit a hash, a UUID or a lock file.

By name: `API_TOKEN=…`, `"password": "…"`, `<password>…</password>`, `name:`/`value:`. A name alone does not make a
secret: code about passwords is full of such names. The text after one is masked if it looks like a value (a literal, a
setting), and left alone if it looks like code, a type, prose or a placeholder.
"""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import cast

MASK_PREFIX = "[masked:"

Cover = Callable[[str, str], str]
"""Returns the replacement for a secret, given its kind and value."""

_INERT = re.compile(r"(?!!)[A-Za-z0-9_.~+/=@:%^!,#*?-]+")
"""Characters that no shell, interpreter or template acts on. Anything else may be code, and so may a leading `!`."""
_INERT_BEFORE_HOST = re.compile(r"[A-Za-z0-9_.~+=:%^!,*-]+")
"""For addresses: also without the characters that decide which part is the host."""

_BY_PLACE = frozenset({"option", "password", "token", "secret", "key", "credential"})
_NO_NAME = re.compile(
    r"(?:[\w~-]+\.)*(?![Xx][Nn]--)(?=[^a-z.]*[a-z])(?=[^A-Z.]*[A-Z])(?=[^0-9.]*[0-9])[\w~-]{16,}={0,2}", re.ASCII
)
"""No host ends so, and no path: with small letters, capitals and digits in one long part."""
_NEAR = 160
"""Characters before a key in which its name must stand."""
_BORDER = re.compile(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[a-z0-9])|(?<=[0-9])(?=[A-Za-z])")
"""In words there are few of them, at random they are more than half of all places."""
_VARIABLE = re.compile(
    r"(?:[;&|][ \t]*|(?<![\w.-])(?:export|env|ENV)[ \t]+|(?<![^\s\"'])(?=--))([\w.-]+)=(?:\\?[\"'])?\Z", re.ASCII
)
_FIELD = re.compile(
    r"(?:(?:\A|(?<!\\)\n)[ \t]*(?:(?:export|set|const|let|var)[ \t]+|//[^\s=?#]{1,99}:)?|"
    r"(?P<within>[({,]\s{0,8}|(?<!\\)\n[ \t]*-[ \t]+))"
    r"(?:[\w.]+\[)?(?P<quote>\\?[\"'])?(?P<name>[\w.-]+)(?(quote)(?P=quote))\]?"
    r"[ \t]*(?(within)(?::|=>?(?=[ \t]*\\?[\"']))|(?::=|=>|[:=]))[ \t]*(?:\\?[\"'])?"
    r"(?:(?i:bearer|basic|token)[ \t]+)?\Z",
    re.ASCII,
)
_HEADER = re.compile(r"authorization:[ \t]*(?:bearer|basic|token|digest|apikey|ssws)[ \t]+\Z", re.IGNORECASE)
"""Before a key: it is the value of a variable or an option, of a field, or in a header. `--token x` is left out, since
a program that knows no such option takes x for a file, a script or a package."""
_AFTER_KEY = re.compile(r"(?:\\?[\"']){0,2}(?:[\s,;&|)\]}]|\Z)")
_NAMES_COMMANDS = re.compile(r"(?:scripts|tasks|dependencies)[\"']?\s*[.:=\]]|\\[uUx]")
"""Before a table whose fields are commands or packages, by whatever name; its own name may be spelled by escapes."""
_BEFORE_USER = re.compile(r"://(?:[\w.%+~-]{0,64}:)?\Z", re.ASCII)
_AFTER_USER = re.compile(r"(?::[\w-]{1,64})?@", re.ASCII)
"""Around the user or the password of an address, which name no host."""
_ADDRESS = re.compile(r"(?:git\+)?(?:https?|ssh)://\S{1,2000}")
"""Bounded, since it is compared for each user that a text names."""

_NAMES_CODE = re.compile(r"[/:@]|^[A-Za-z_][\w-]*(?:\.[\w-]+)+$")
"""A path, address, package with its version, or module: `"reset-password": "tools/x1"` is a script that runs."""


def cover(kind: str, value: str) -> str:
    """Cover all of a secret: for the model, recorded results and logs."""
    return f"{MASK_PREFIX}{kind}]"


def cover_inert(kind: str, value: str) -> str:
    """Cover only what could not be code, and say its length: for calls that people decide about."""
    inert = _INERT_BEFORE_HOST if kind == "url-password" else _INERT
    if not inert.fullmatch(value) or (kind in _BY_PLACE and _NAMES_CODE.search(value)):
        return value
    return f"{MASK_PREFIX}{kind}, {len(value)} character{'' if len(value) == 1 else 's'}]"


def cover_key(kind: str, value: str) -> str:
    """For text that runs: arguments, scripts, files that something obeys. A word after a name or an option may be a
    program, package or host there, so only keys known by their own form are covered (`_is_key`)."""
    return value


def cover_nothing(kind: str, value: str) -> str:
    """Cover nothing: for a person who asked to see what is masked in a call they decide about."""
    return value


@dataclass(frozen=True)
class Format:
    """A secret that is known by its form; group 1, if any, is the part that is masked."""

    kind: str
    needle: str
    source: str
    flags: int = 0
    also: str = ""
    """A second needle, without which the form means nothing; searched for in the lower-case text."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        # Compiled when its needle is first seen: most never are, and a program must start quickly.
        return re.compile(self.source, self.flags)

    def mask(self, text: str, cover: Cover) -> str:
        return self.pattern.sub(_replacer(self.kind, cover), text)


def _replacer(kind: str, cover: Cover) -> Callable[[re.Match[str]], str]:
    runs = cover is cover_key
    if runs and kind in _BY_FORM:
        cover = cover_inert
    names_commands = cache(_NAMES_COMMANDS.search)  # one search of the whole text

    def replace(match: re.Match[str]) -> str:
        if not _is_key(match, names_commands) if runs else cover is cover_inert and _is_other(match):
            return match.group()
        if not match.re.groups:
            return cover(kind, match.group())
        whole, part = match.group(), match.group(1)
        if PLACEHOLDER.match(part):
            return whole
        start, end = match.span(1)
        if whole[: start - match.start()].endswith(MASK_PREFIX) and _REST_OF_MASK.fullmatch(part):
            return whole
        return f"{whole[: start - match.start()]}{cover(kind, part)}{whole[end - match.start() :]}"

    return replace


def _is_key(match: re.Match[str], names_commands: Callable[[str], object]) -> bool:
    """True if what was found in text that runs is a key for certain: by what it is, and by a name that says so or its
    place in an address. Any other word may be a program, a package or a file, whatever it looks like."""
    value, (start, end) = match.group(match.re.groups), match.span(match.re.groups)
    text, near = match.string, max(0, start - _NEAR)
    is_user = _BEFORE_USER.search(text, near, start) is not None and _AFTER_USER.match(text, end) is not None
    if is_user and _ADDRESS.fullmatch(text):
        return True  # one argument: no shell takes it apart
    is_random = _NO_NAME.fullmatch(value) is not None and 3 * len(_BORDER.findall(value)) >= len(value)
    if not is_random or not (is_user or _AFTER_KEY.match(text, end)) or _holds_text(value):
        return False
    if is_user or _HEADER.search(text, near, start):
        return True
    variable, field = _VARIABLE.search(text, near, start), _FIELD.search(text, near, start)
    if variable is not None and _says_key(variable.group(1)):
        return True
    # `TOKEN=x` alone may be an argument, and so a file.
    is_field = field is not None and _says_key(field.group("name")) and (field.start("name") > 0 or "\n" in text)
    return is_field and not names_commands(text)


def _is_other(match: re.Match[str]) -> bool:
    """True if what looks like a key is set as something else, or is not all that is set: `BASH_ENV` names a program,
    and so may `./x`, `$(x)` or a word of `NODE_OPTIONS`."""
    text, (start, end) = match.string, match.span(match.re.groups)
    near = max(0, start - _NEAR)
    if _NO_NAME.fullmatch(match.group(match.re.groups)) is None:
        return False
    if _BEFORE_USER.search(text, near, start) and _AFTER_USER.match(text, end):
        return False
    field = _FIELD.search(text, near, start)
    if field is not None:
        return not _says_key(field.group("name"))
    setting = _SETTING.match(text, text.rfind("\n", 0, start) + 1, start)
    is_part = setting is not None and not _says_key(setting.group(1))
    return is_part or text[start - 1 : start] in _GLUED


_GLUED = frozenset("/`(:=")
_SETTING = re.compile(r"[ \t]*(?:export[ \t]+)?[\"']?([\w.-]{1,200})[\"']?[ \t]*[:=]", re.ASCII)
_NAMES_PROGRAM = re.compile(
    r"(?:askpass|command|cmd|program|helper|process|provider|script|exec|hook|plugin)$", re.IGNORECASE
)


def _says_key(name: str) -> bool:
    return name.lower() == "authorization" or (_ENDS_TELLING.search(name) is not None and _is_telling(name))


def _holds_text(value: str) -> bool:
    """True if a part of it is base64 of text: code could be hidden so. A signed token's objects are no code."""
    parts = [part for part in re.split(r"[^A-Za-z0-9+/_-]", value) if not _is_object(part)]
    parts += [re.sub("[-_]", "", part) for part in parts]  # decoders may skip what is not of their alphabet
    for part in parts:
        for start in range(4):  # behind a prefix of any length
            piece = part[start : start + (len(part) - start) // 4 * 4]
            found = base64.b64decode(piece, altchars=b"-_").replace(b"\0", b"")
            if len(found) >= 12 and sum(32 <= byte < 127 or byte in b"\t\n" for byte in found) > 0.8 * len(found):
                return True
    return False


def _is_object(part: str) -> bool:
    """True for base64 of a JSON object whose values are short, as in a signed token."""
    try:
        found = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_"))
    except ValueError:
        return False
    return isinstance(found, dict) and all(len(str(each)) <= 64 for each in cast("dict[str, object]", found).values())


PLACEHOLDER = re.compile(
    r"<|[{%]{2}|[$#]?\{|\$\(|\$[A-Za-z_]\w*(?![\w!@#%^&*?-])|%[sdvr(]|%\w+%|\[masked:|x{3,}|\*{3,}|\.{3}|…|"
    r"your[-_ ]|my[-_]|example|placeholder|change[-_]?(?:me|it)|dummy|redacted|todo|insert[-_]|"
    r"process\.env|os\.environ|env\.|ENV\[|https?://",
    re.IGNORECASE,
)
"""Text that people write in place of a secret."""

_REST_OF_MASK = re.compile(r"[a-z0-9-]{1,40}(?:, [0-9]{1,9} characters?)?\]")
"""`url-token]` of `https://[masked:url-token]@host`: its colon does not make it a user and a password."""

_A = "[A-Za-z0-9]"
_W = "[A-Za-z0-9_-]"
_DIGIT = r"(?=[A-Za-z_-]{0,60}[0-9])"
_END = r"(?![A-Za-z0-9+=])"


def _key(kind: str, prefix: str, body: str) -> Format:
    # The lookbehind follows the literal: a search is much faster if the pattern begins with a literal.
    before = rf"(?<![A-Za-z0-9]{re.escape(prefix)})"
    return Format(kind, prefix, f"{re.escape(prefix)}{before}{body}")


def _bare(kind: str, prefix: str, body: str) -> Format:
    """A key whose prefix may occur in base64 by chance: no base64 character may touch it."""
    before = rf"(?<![A-Za-z0-9+]{re.escape(prefix)})"
    return Format(kind, prefix, f"{re.escape(prefix)}{before}{body}{_END}")


_PREFIXED: tuple[tuple[str, str, str], ...] = (
    # kind, prefixes, what follows
    ("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", f"{_A}{{30,255}}"),
    ("github-token", "github_pat_", "[A-Za-z0-9_]{22,255}"),
    (
        "gitlab-token",
        "glpat- gldt- glrt- glptt- glft- glsoat- glimt- glagent- glcbt- gloas- glffct- glwt-",
        "[A-Za-z0-9_.-]{19,254}[A-Za-z0-9_-]",
    ),
    ("gitlab-token", "GR1348941", f"{_W}{{20,64}}"),
    (
        "slack-token",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.xoxp- xoxe.xoxb-",
        r"[A-Za-z0-9%-]{10,512}",
    ),
    ("slack-token", "xapp-", r"\d-[A-Za-z0-9-]{10,255}"),
    ("stripe-key", "sk_live_ rk_live_ sk_test_ rk_test_ whsec_", "[A-Za-z0-9+/=]{16,255}"),
    ("anthropic-key", "sk-ant-", f"{_W}{{20,255}}"),
    ("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None- sk-or-v1-", f"{_W}{{20,255}}"),
    (
        "openai-key",
        "sk-",
        rf"(?:{_A}{{32,255}}|(?=[a-zA-Z]{{0,30}}[0-9])(?=[a-z0-9]{{0,30}}[A-Z]){_A}{{20,31}})(?!{_A})",
    ),
    ("groq-key", "gsk_", f"{_DIGIT}{_A}{{40,64}}"),
    ("langsmith-key", "lsv2_pt_ lsv2_sk_", "[0-9a-f]{32}_[0-9a-f]{10}"),
    ("perplexity-key", "pplx-", f"{_A}{{40,64}}"),
    ("xai-key", "xai-", f"{_DIGIT}{_A}{{60,100}}"),
    ("replicate-token", "r8_", f"{_A}{{37}}"),
    ("tavily-key", "tvly-", rf"(?:dev-|prod-)?{_DIGIT}{_A}{{28,64}}"),
    ("npm-token", "npm_", f"{_A}{{36,64}}"),
    ("pypi-token", "pypi-", f"{_W}{{50,512}}"),
    ("rubygems-key", "rubygems_", "[0-9a-f]{48}"),
    ("docker-token", "dckr_pat_ dckr_oat_", f"{_W}{{20,64}}"),
    ("huggingface-token", "hf_ api_org_", f"{_A}{{30,64}}"),
    ("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", "[a-f0-9]{64}"),
    ("heroku-key", "HRKU-AA", f"{_W}{{50,100}}"),
    ("shopify-token", "shpat_ shpca_ shppa_ shpss_", "[a-fA-F0-9]{32}"),
    ("square-token", "sq0atp- sq0csp- sq0idp-", f"{_W}{{20,64}}"),
    ("google-token", "GOCSPX-", f"{_W}{{20,64}}"),
    ("google-token", "ya29.", f"{_W}{{20,1024}}"),
    ("google-token", "1//0", f"{_W}{{40,512}}"),
    ("google-key", "AIza", f"{_W}{{35}}"),
    ("sendgrid-key", "SG.", rf"{_W}{{16,32}}\.{_W}{{16,64}}"),
    ("sendinblue-key", "xkeysib-", f"[0-9a-f]{{64}}-{_A}{{16}}"),
    ("vault-token", "hvs. hvb. hvr.", f"{_W}{{24,400}}"),
    ("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", rf"(?:[a-z0-9_-]{{2,35}}\.)?{_A}{{40,44}}"),
    ("pulumi-token", "pul-", "[0-9a-f]{40}"),
    ("grafana-token", "glsa_", f"{_A}{{32}}_[0-9A-Fa-f]{{8}}"),
    ("grafana-token", "glc_eyJ", "[A-Za-z0-9+/=]{32,400}"),
    ("newrelic-key", "NRAK-", "[A-Z0-9]{27}"),
    ("sentry-token", "sntrys_eyJ sntryu_", "[A-Za-z0-9+/=_]{40,400}"),
    ("linear-key", "lin_api_ lin_oauth_", f"{_A}{{40,64}}"),
    ("notion-token", "secret_ ntn_", f"{_DIGIT}{_A}{{43,50}}"),
    ("figma-token", "figd_", f"{_W}{{38,48}}"),
    ("atlassian-token", "ATATT3 ATCTT3", "[A-Za-z0-9_=-]{50,400}"),
    ("postman-key", "PMAK-", "[0-9a-f]{24}-[0-9a-f]{34}"),
    ("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", "[A-Za-z0-9_.=-]{32,64}"),
    ("dynatrace-token", "dt0c01. dt0s16.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    ("shippo-token", "shippo_live_ shippo_test_", "[0-9a-f]{40}"),
    ("fly-token", "fo1_", f"{_W}{{43}}"),
    ("fly-token", "fm2_ fm1r_ fm1a_", "[A-Za-z0-9+/]{100,2000}={0,3}"),
    ("supabase-token", "sbp_", "[0-9a-f]{40}"),
    ("supabase-token", "sb_secret_", f"{_W}{{25,64}}"),
    ("netlify-token", "nfp_", f"{_DIGIT}{_A}{{36,64}}"),
    ("render-key", "rnd_", f"{_DIGIT}{_A}{{28,40}}"),
    ("prefect-token", "pnu_ pnb_", f"{_DIGIT}{_A}{{36}}"),
    ("readme-key", "rdme_", "[a-zA-Z0-9]{70}"),
    ("sourcegraph-token", "sgp_", "(?:[0-9a-f]{16}_)?[0-9a-f]{40}"),
    ("contentful-token", "CFPAT-", f"{_W}{{43}}"),
    ("adafruit-key", "aio_", f"{_DIGIT}{_A}{{28}}"),
    ("hubspot-token", "pat-na1- pat-eu1-", "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    ("clojars-token", "CLOJARS_", "[0-9a-f]{60}"),
    ("1password-token", "ops_eyJ", "[A-Za-z0-9+/=_-]{100,2000}"),
    ("1password-key", "A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"),
    ("cloudflare-key", "v1.0-", "[0-9a-f]{24}-[0-9a-f]{146}"),
    ("yandex-token", "t1.9eu", rf"[A-Za-z0-9_=-]{{20,400}}\.{_W}{{86}}=?"),
    ("age-key", "AGE-SECRET-KEY-1", "[A-Z0-9]{58}"),
)
_BARE: tuple[tuple[str, str, str], ...] = (
    ("aws-key", "AKIA ASIA ABIA ACCA", "[A-Z0-9]{16}"),
    ("aws-key", "ABSK", "[A-Za-z0-9+/]{80,300}={0,2}"),
    ("alibaba-key", "LTAI", f"{_A}{{12,24}}"),
    ("tencent-key", "AKID", f"{_DIGIT}{_A}{{32}}"),
    ("bitbucket-token", "ATBB", f"{_DIGIT}{_A}{{32}}"),
    ("artifactory-key", "AKCp", f"{_A}{{60,80}}"),
    ("yandex-key", "AQVN", f"{_DIGIT}{_W}{{35,38}}"),
    ("easypost-key", "EZAK EZTK", f"{_DIGIT}{_A}{{54}}"),
    ("databricks-token", "dapi", "[0-9a-f]{32}(?:-[0-9])?"),
    ("crates-token", "cio", f"{_DIGIT}(?=[a-z0-9]{{0,31}}[A-Z]){_A}{{32}}"),
    ("nuget-key", "oy2", "(?=[a-z]{0,42}[2-7])[a-z2-7]{43}"),
    ("twilio-key", "SK", "[0-9a-f]{32}"),
)

# Text between the lines of a key: line ends, quotes, and the prefixes of `cat -n` and `grep -n`.
_BETWEEN = r"(?:(?<=\n)(?:[\w./-]{0,120}[:-])?\ {0,8}[0-9]{1,7}[:\t-]|\\[rn]|[\s\"'+,])*+"
_KEY_LINES = (
    rf"({_BETWEEN}(?:(?:[A-Za-z0-9+/=_]{{16,}}+|(?:Proc-Type|DEK-Info|Version|Comment)[^\n]{{0,200}}\n)"
    rf"{_BETWEEN})++[A-Za-z0-9+/=]*+)"
)
_DATABASES = r"(?:postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?|amqps?|mssql|clickhouse|cockroachdb)"


_PLACES = (
    Format("okta-token", "SSWS ", rf"SSWS (00{_W}{{38,42}})"),
    Format("telegram-token", ":AA", r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    Format(
        "jwt",
        "eyJ",
        r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{8,}+\."
        r"(?:eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]{8,}+)?|(?:[A-Za-z0-9_-]{8,2000}\.){3}[A-Za-z0-9_-]{8,}+)",
    ),
    Format(
        "discord-token", ".", r"(?<![A-Za-z0-9_-])[MNO][A-Za-z0-9_-]{23,27}\.[\w-]{6}\.[\w-]{27,40}", also="discord"
    ),
    Format("discord-webhook", "/webhooks/", r"/api/webhooks/[0-9]{15,22}/([A-Za-z0-9_-]{50,90})"),
    Format(
        "slack-webhook", "slack.com/", r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9_/-]{20,255})"
    ),
    Format("teams-webhook", ".office.com/", r"\.office\.com/webhookb?2?/([A-Za-z0-9@/_-]{60,255})"),
    Format("azure-secret", "Q~", r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}"),
    Format("terraform-token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,80}"),
    Format("airtable-token", "pat", r"pat(?<![A-Za-z0-9]pat)[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    Format("mailchimp-key", "-us", r"(?<![0-9a-zA-Z])[0-9a-f]{32}-us[0-9]{1,2}(?![0-9a-zA-Z-])", also="mailchimp"),
    Format("mailgun-key", "key-", r"key-(?<![A-Za-z0-9]key-)[0-9a-f]{32}", also="mailgun"),
    Format("mailgun-key", "-", r"(?<![0-9a-f-])[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?![0-9a-f-])", also="mailgun"),
    Format("url-password", "://", r"://[^\s/:@\"'<>]{0,128}:(?![0-9.]{1,12}@sha)([^\s/\"'<>]{1,256})@"),
    Format("url-password", "://", rf"{_DATABASES}://[^\s/:@\"'<>]{{0,128}}:([^\s\"'<>\[]{{1,256}})@"),
    Format("url-password", "jdbc:oracle", r"jdbc:oracle:\w{1,10}:[^\s/@\"']{1,64}/([^\s@\"']{1,128})@"),
    Format("npm-token", ":_", r"^//[^\s=?#]{1,253}:_(?:authToken|auth|password)=([^\s\"']{6,1024})$", re.MULTILINE),
    Format("url-token", "://", r"://(?=[A-Za-z_-]{0,64}[0-9])([A-Za-z0-9_-]{20,256})@"),
    Format("url-signature", "ignature=", r"[?&;][Xx]-(?:Amz|Goog)-Signature=([0-9a-f]{32,1024})"),
    Format("url-signature", "sig=", r"[?&;=]sig=([A-Za-z0-9%+/_-]{30,128}=?)"),
    Format("url-key", "key=", r"[?&]key=(?=[A-Za-z_-]{0,64}[0-9])([A-Za-z0-9_-]{20,128})"),
    Format("private-key", "PRIVATE KEY", rf"-----BEGIN [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----{_KEY_LINES}"),
    Format("private-key", "PuTTY-User-Key", r"Private-Lines: [0-9]{1,4}\r?\n((?:[A-Za-z0-9+/=]{1,80}\r?\n?){1,400})"),
    Format(
        "private-key",
        "LS0tLS1CRUdJTiB",  # base64 of `-----BEGIN `, and then of the names of private keys
        r"(LS0tLS1CRUdJTiB(?:SU0EgUFJJVkFURS|QUklWQVRF|FQyBQUklWQVRF|PUEVOU1NI|FTkNSWVBURUQ|EU0EgUFJJ|QR1AgUFJJ)"
        r"[A-Za-z0-9+/=]{0,20000}+)",
    ),
    Format(
        "password-hash",
        "$",
        r"\$(?:2[abxy]\$[0-9]{2}\$[./A-Za-z0-9]{53}|apr1\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{22}|"
        r"[156]\$(?:rounds=[0-9]{1,9}\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{22,86}|"
        r"(?:y|7|gy)\$[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{1,86}\$[./A-Za-z0-9]{43}|"
        r"argon2(?:id|i|d)\$[^\s\"']{30,300})",
    ),
    Format("password-hash", "{SHA}", r"\{SHA\}[A-Za-z0-9+/]{27}="),
    Format("password-hash", "{SSHA}", r"\{SSHA\}[A-Za-z0-9+/]{32,64}={0,2}"),
)

# A flag (`--no-token`, `--ask-password`) takes no value: the next argument is something else.
_OPTION = r"--(?!no-|ask-|use-|without-|skip-)[a-z0-9-]{0,40}?(?:password|passwd|passphrase|token|secret|api-?key)"
OPTION_NAME = re.compile(rf"{_OPTION}|--?pass", re.IGNORECASE)
"""An option whose value is a secret, without that value."""


def _rest(word: str) -> str:
    """Pattern of the rest of a command line, up to the same command again: no text is scanned twice."""
    return rf"(?:[^\n|;&\\{word[0]}]|\\\n|{word[0]}(?!{word[1:]})){{0,300}}?"


_CURL = rf"curl(?<!\wcurl)\b{_rest('curl')}\s(?:-u|--user|--proxy-user)[ =]{{0,4}}"


# As above, but the needle is looked for in the lower-case text.
_WORDS = (
    Format("option", "--", _OPTION + r"\s{1,4}[\"']?(?=[A-Za-z_.+/=-]{0,64}[0-9])([^\s\"'<>\[-][^\s\"']{5,512})"),
    Format(
        "authorization",
        "authorization",
        r"authorization[\"']?\s{0,8}[:=]\s{0,8}[fbr]?[\"']?(?:basic|bearer|token|digest|apikey|api-token|ssws)\s{1,8}"
        r"([A-Za-z0-9._~+/=-]{8,4096})",
        re.IGNORECASE,
    ),
    Format(
        "authorization",
        "authorization",
        r"authorization[\"']?\s{0,8}:\s{0,8}[\"']?(?=[A-Za-z._~+/-]{0,64}[0-9])([A-Za-z0-9._~+/=-]{16,4096})",
        re.IGNORECASE,
    ),
    Format(
        "bearer",
        "bearer",
        r"earer(?<=[Bb]earer)\s{1,8}(?=[A-Za-z._~+/-]{0,200}[0-9])([A-Za-z0-9._~+/-]{20,4096}=*)",
    ),
    Format("cookie", "cookie:", r"ookie:(?<=[Cc]ookie:) {0,4}([\w.-]{1,64}=[^\n\"']{16,4096})"),
    Format("npm-auth", "_auth", r"_auth\s{0,8}=\s{0,8}[\"']?([A-Za-z0-9+/=]{6,1024})"),
    Format("npm-auth", "_authtoken", r"_authToken[ \t]{1,4}[\"']?([A-Za-z0-9._-]{8,255})"),
    Format("docker-auth", '"auth"', r"\"auth\"\s{0,4}:\s{0,4}\"([A-Za-z0-9+/=]{8,4096})\"", also='"auths"'),
    Format(
        "netrc-password",
        "password",
        r"\b(?:login|machine|default)\s{1,20}(?:\S{1,256}\s{1,20}){0,3}?password\s{1,20}([^\s=:\[][^\s=:]{2,255})",
        also="machine",
    ),
    *(  # of git's own settings
        Format(
            "mail-password",
            f"[{section}",
            rf"(?i)\[{section}[^\[\]]{{0,64}}\][^\[]{{0,512}}?\n\s{{0,8}}(?:smtp)?pass\s{{0,8}}=\s{{0,8}}\"?([^\s\"]{{3,256}})",
        )
        for section in ("imap", "sendemail")
    ),
    Format("pgpass", ":5432:", r"[\w.*-]{1,100}:5432:[\w.*-]{1,64}:[\w.@*-]{1,64}:(\S{3,128})"),
    Format("pgpass", ":*:", r"[\w.*-]{1,100}:\*:[\w.*-]{1,64}:[\w.@*-]{1,64}:(\S{3,128})"),
    # command lines
    Format("curl-user", "curl", rf"{_CURL}\"[^\s:\"]{{0,128}}:([^\"\n]{{3,256}})\""),
    Format("curl-user", "curl", rf"{_CURL}'?[^\s:\"']{{0,128}}:([^\s\"'\[]{{3,256}})"),
    Format(
        "mysql-password",
        "mysql",
        rf"mysql(?<!\wmysql)(?:dump|admin|import)?\b{_rest('mysql')}\s-p([^\s\"'-][^\s\"']{{2,128}})",
    ),
    Format("sshpass", "sshpass", r"sshpass\s{1,4}-p\s{0,4}[\"']?([^\s\"']{3,256})"),
    Format(
        "login-password",
        "login",
        rf"login(?<=[a-z] login)\b{_rest('login')}\s-p\s{{1,4}}[\"']?([^\s\"'-][^\s\"']{{2,256}})",
    ),
    Format("redis-password", "redis-cli", rf"redis-cli\b{_rest('redis-cli')}\s-a\s{{1,4}}[\"']?([^\s\"']{{3,256}})"),
    Format("openssl-password", "-pass", r"-pass(?:in|out)?\s{1,4}[\"']?pass:([^\s\"']{1,256})"),
    Format(
        "chpasswd",
        "chpasswd",
        r"echo\s{1,4}[\"']?[\w-]{1,64}:([^\s\"'|]{3,128})[\"']?\s{0,4}\|\s{0,4}(?:sudo\s{1,4})?chpasswd",
    ),
)
_KEYS: tuple[Format, ...] = (
    *(_key(kind, prefix, body) for kind, prefixes, body in _PREFIXED for prefix in prefixes.split()),
    *(_bare(kind, prefix, body) for kind, prefixes, body in _BARE for prefix in prefixes.split()),
)
_BY_FORM = frozenset(form.kind for form in (*_KEYS, *_PLACES)) | {"authorization", "bearer"}
# Prefixes are searched for only around long runs after their last sign, not in the whole text: a hundred plain
# searches are faster in little text.
_RUNS = {
    "_": re.compile(r"_[A-Za-z0-9+/_-]{16}"),
    "-": re.compile(r"-[A-Za-z0-9_.-]{16}"),
    ".": re.compile(r"\.[A-Za-z0-9_-]{16}"),
}
_REACH = 20
"""At least the length of the longest prefix."""


def _last_sign(prefix: str) -> str:
    return next((sign for sign in reversed(prefix) if sign in _RUNS), "")


_KEYS_BY_SIGN = tuple((sign, tuple(form for form in _KEYS if _last_sign(form.needle) == sign)) for sign in _RUNS)
_SHORTEST_KEY = 20
_ANYWHERE = (*(form for form in _KEYS if not _last_sign(form.needle)), *_PLACES)
"""Formats whose needle is searched for in the whole text as it is."""
_LETTERS = tuple(sorted({letter for form in (*_ANYWHERE, *_WORDS) for letter in form.needle}))


def mask_formats(text: str, lower: str, cover: Cover) -> str:
    """Mask secrets that are known by their form; `lower` is the text in lower case."""
    masked = text
    if len(text) >= _SHORTEST_KEY:
        for sign, forms in _KEYS_BY_SIGN:
            if sign in text and (around := _around(text, sign)):
                for form in forms:
                    if form.needle in around:
                        masked = form.mask(masked, cover)
    # Searching for a letter takes a fiftieth of the time of a word, and most texts lack some letters.
    anywhere, words = _possible("".join([letter for letter in _LETTERS if letter in text or letter in lower]))
    for form in anywhere:
        if form.needle in text and form.also in lower:
            masked = form.mask(masked, cover)
    for form in words:
        if form.needle in lower and form.also in lower:
            masked = form.mask(masked, cover)
    return masked


@lru_cache(maxsize=1024)
def _possible(letters: str) -> tuple[tuple[Format, ...], tuple[Format, ...]]:
    """Formats whose needle has only these letters: for the text as it is, and for lower case."""
    there = set(letters)
    return (
        tuple(form for form in _ANYWHERE if there.issuperset(form.needle)),
        tuple(form for form in _WORDS if there.issuperset(form.needle)),
    )


def _around(text: str, sign: str) -> str:
    """The parts of a text where prefixes with this sign may occur."""
    runs = _RUNS[sign].finditer(text)
    return "\n".join([text[max(0, run.start() - _REACH) : run.end() + 4] for run in runs])


_NAME_WORDS = ("key", "token", "secret", "pass", "pwd", "credential")
_AFTER = (
    r"(?:word|wd|phrase)?(?:_[a-z][a-z0-9_]{0,30}+|[0-9_]{1,4}+|s)?+[\\\"'\]]{0,3}[ \t]{0,8}"
    r"(?:=(?!=)|:(?![:/])|>(?=[^<>\n])|,[ \t]{0,4}[\"'{]|(?:,\s{0,40}|\s{1,40})[\"']?value[\"']?[ \t]{0,4}[:=])"
)


@cache
def _hits(word: str) -> re.Pattern[str]:
    """Pattern for lower-case text: a telling word followed by what may give it a value.

    Compiled on first use: it takes longer than everything else in loading the gate.
    """
    return re.compile(word + _AFTER)


_STAGE = "_(?:base|prod|production|dev|staging|test|live|old|new|admin|root)"
_NAME = (
    r"(?i:key|token|secret|password|passwd|pwd|passphrase|pass(?![a-z])|credential)"
    rf"(?P<suffix>s|[0-9_]{{1,4}}|_[A-Z][A-Z0-9_]{{0,30}}|{_STAGE})?"
)
_ENDS_TELLING = re.compile(rf"{_NAME}\Z")
_ASSIGNMENT = re.compile(
    rf"{_NAME}(?P<close>[\\\"'\]]{{0,3}})(?P<left>[ \t]{{0,8}})(?P<sign>=>|:=|=(?!=)|:(?![:/]))(?P<right>[ \t]{{0,8}})"
)
_PAIR = re.compile(
    rf"{_NAME}(?P<close>[\"']{{0,1}})(?P<left>)(?:,\s{{0,40}}|\s{{1,40}})[\"']?(?i:value)[\"']?[ \t]{{0,4}}"
    r"(?P<sign>[:=])(?P<right>[ \t]{0,4})"
)
_ARGUMENT = re.compile(rf"{_NAME}(?P<close>[\"'])(?P<left>)(?P<sign>,)(?P<right>[ \t]{{0,4}})(?=[\"'])")
_ELEMENT = re.compile(rf"{_NAME}(?P<close>)(?P<left>)(?P<sign>>)(?P<right>)(?=[^<>\n]{{3,1024}}</)")
_FORMS = (_ASSIGNMENT, _PAIR, _ARGUMENT, _ELEMENT)

_VALUE = re.compile(
    r"\\\"(?P<escaped>[^\"\\\n]{1,1024})\\\"|\"(?P<double>(?:[^\"\\\n]|\\[^\n]){1,1024}+)\"|"
    r"'(?P<single>(?:[^'\\\n]|\\[^\n]){1,1024}+)'|`(?P<back>[^`\\\n$]{1,1024})`|"
    r"(?P<bare>[^\s\"'`,;<>(){}\[\]|&]{4,1024})"
)
_ELEMENT_VALUE = re.compile(r"(?P<element>[^<>\n]{3,1024})")
_SETTING_VALUE = re.compile(r"(?P<setting>[^\s\"'`]\S{3,1023})")
_BACKWARDS = re.compile(r"[A-Za-z0-9_.-]*+")
_SHORT_NAME = "(?:[_.-]|smtp|imap|mail|ftp|db|sql|proxy|admin|root|bind|key|store)pass"
_STRONG = re.compile(
    rf"(?i)(?:passw(?:or)?d|passphrase|pwd|{_SHORT_NAME}|secrets?|credentials?|(?:^|[_.-])tokens?|"
    r"(?:auth|access|refresh|api|bot|id|session|bearer|client|deploy|github|gitlab|npm|slack|csrf|private|user|app|"
    r"personal)[_-]?token|"
    r"(?:api|secret|access|private|encryption|signing|auth|account|master|service|client|ssh|gpg|license|shared|"
    r"storage|admin|app|consumer|deploy|webhook|jwt|session)[_-]?keys?)"
    rf"(?:[0-9_]*|{_STAGE})$"
)
_UPPER = re.compile(r"[A-Z][A-Z0-9_]*")
_ABOUT = re.compile(
    r"(?i)_?(?:name|id|url|uri|file|path|dir|type|length|size|len|count|ttl|expiry|expires|alg|format)$|"
    r"(?:public|primary|foreign|cache|sort|partition|hash|group|index|lookup|unique|row|pub|host|map|dict)_?keys?$"
)
_PASSWORD = re.compile(rf"(?i)passw(?:or)?d|passphrase|pwd|{_SHORT_NAME}$|secret|credential")
_FREE_FORM = re.compile(r"(?i)pass|pwd")
"""People choose passwords; secrets and credentials are long."""
_ANY_DIGIT = re.compile(r"[0-9]")
_LETTER = re.compile(r"[^\W\d_]")
_REFERENCE = re.compile(r"[A-Za-z_$][A-Za-z_$]*(?:\.[A-Za-z_$][\w$]*)*[?!]?")
_TYPE = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*[0-9]?[?]?|(?:[a-z_]\w*\.)+[A-Z]\w*")
_CALL = re.compile(r"[A-Za-z_$][\w.$]*[(\[{]")
_PLAIN_VALUE = re.compile(r"[0-9_.,:%-]+|(?:true|false|null|none|undefined|nil|yes|no)|[.~]{0,2}/.*", re.IGNORECASE)
_NOT_A_PASSWORD = re.compile(
    r"password|passwd|secret|text|hidden|string|token|required|optional|username|credentials?|plaintext|encrypted|"
    r"disabled|enabled|invalid|incorrect|undefined|database|keyring|external|internal|same-origin|include|omit"
)
_LINE_START = re.compile(r"(?:^|\n)[ \t+-]{0,20}(?:export[ \t]{1,4}|-e[ \t]{1,4}|set[ \t]{1,4})?$")


@dataclass(frozen=True, slots=True)
class _Named:
    """A telling name and how it is given a value."""

    name: str
    begin: int
    match: re.Match[str]

    @property
    def sign(self) -> str:
        return self.match.group("sign")

    @property
    def glued(self) -> bool:
        """`NAME=value`: settings and command lines."""
        return self.sign == "=" and not self.match.group("left") and not self.match.group("right")

    @property
    def upper(self) -> bool:
        return _is_upper(self.name)

    @property
    def kind(self) -> str:
        lower = self.match.group().lower()
        return next(
            (word for word in ("password", "token", "secret", "key", "credential") if word in lower), "password"
        )


def mask_named(text: str, lower: str, cover: Cover) -> str:
    """Mask values after telling names; `lower` is the text in lower case, of the same length."""
    pieces: list[str] = []
    done = 0
    for at in _places(lower):
        named = None if at < done else _named(text, at)
        value = None if named is None else _value(text, named)
        if named is None or value is None or not _is_secret(text, named, value):
            continue
        group = value.lastgroup or "bare"
        names_program = _NAMES_PROGRAM.search(named.name) or text[value.start(group) - 1] == "`"
        if cover is cover_inert and names_program:
            continue
        pieces += [text[done : value.start(group)], cover(named.kind, value.group(group))]
        done = value.end(group)
    if not pieces:
        return text
    return "".join((*pieces, text[done:]))


def telling_field(name: str) -> bool:
    """True if a field of this name holds a secret whatever its value looks like."""
    return _STRONG.search(name) is not None


def _places(lower: str) -> list[int]:
    """Sorted positions of telling words that have a value."""
    return sorted({hit.start() for word in _NAME_WORDS if word in lower for hit in _hits(word).finditer(lower)})


def _named(text: str, at: int) -> _Named | None:
    """The whole name at a telling word; None if nothing after it would count as a secret."""
    match = next((found for form in _FORMS if (found := form.match(text, at)) is not None), None)
    if match is None:
        return None
    begin = at
    if at and (text[at - 1].isalnum() or text[at - 1] in "_.-"):
        backwards = _BACKWARDS.match(text[max(0, at - 64) : at][::-1])
        begin = at - (backwards.end() if backwards else 0)
    named = _Named(text[begin : match.start("close")], begin, match)
    if not _is_telling(named.name):
        return None
    before = text[max(0, begin - 12) : begin]
    if named.sign == ">" and before[-1:] not in ("<", ":"):
        return None
    if named.sign == "," and not before.rstrip("\"' ").endswith("("):
        return None
    return named


def _value(text: str, named: _Named) -> re.Match[str] | None:
    """The text after a name, if it may be a value at all."""
    at = named.match.end()
    if PLACEHOLDER.match(text, at):
        return None
    if named.sign == ">":
        return _ELEMENT_VALUE.match(text, at)
    if named.glued and named.upper and not _CALL.match(text, at):
        # A line of settings: the value is all that follows, whatever characters it holds.
        before = text[max(0, named.begin - 40) : named.begin]
        setting = _SETTING_VALUE.match(text, at)
        if setting is not None and (_LINE_START.search(before) or not before):
            return setting
    return _VALUE.match(text, at)


@lru_cache(maxsize=4096)
def _is_telling(name: str) -> bool:
    return not _ABOUT.search(name) and (_is_upper(name) or _STRONG.search(name) is not None)


def _is_upper(name: str) -> bool:
    return _UPPER.fullmatch(name.lstrip(".-_").rpartition(".")[2]) is not None


def _is_secret(text: str, named: _Named, found: re.Match[str]) -> bool:
    """True if a value behind a telling name is a secret, rather than code about one."""
    group = found.lastgroup or "bare"
    value = found.group(group)
    password = _PASSWORD.search(named.name) is not None
    if len(value) < 4 or PLACEHOLDER.match(value) or value in ("VALUE", "value"):
        return False
    if not telling_field(named.name) and not _ANY_DIGIT.search(value):
        return False  # `META_KEY = "some/name"`
    quoted = group not in ("bare", "setting")
    if named.upper and named.glued and password and quoted:
        return True  # in a setting, even prose or a number is a password
    if _PLAIN_VALUE.fullmatch(value):
        return password and value.isdigit() and len(value) >= 6
    if group == "setting":
        return not _is_variable(value) and (len(value) >= 6 or not _REFERENCE.fullmatch(value))
    if quoted:
        return _quoted_secret(named.name, value, password=password)
    return _bare_secret(text, named, found, password=password)


def _quoted_secret(name: str, value: str, *, password: bool) -> bool:
    if any(character.isspace() for character in value):
        return False
    if password:
        return (len(value) >= 6 or _FREE_FORM.search(name) is not None) and not _NOT_A_PASSWORD.fullmatch(value.lower())
    return len(value) >= 8 and _has_variety(value)


def _bare_secret(text: str, named: _Named, found: re.Match[str], *, password: bool) -> bool:
    value = found.group("bare")
    after = text[found.end() : found.end() + 1]
    if after and after in "([{":
        return False  # a call or an index: code
    reference = _REFERENCE.fullmatch(value) is not None
    if named.glued:
        if reference and (after in (",", ")") or _is_variable(value)):
            return False  # `name=name,` is a keyword argument
        return (named.upper and len(value) >= 6) or not reference or (password and "." not in value)
    if password and after in ("", "\n", "\r") and _plain_password(text, named, value):
        return True
    if reference or _TYPE.fullmatch(value):
        return False
    return len(value) >= 6 and _has_variety(value)


def _is_variable(value: str) -> bool:
    """`self.token`, or `token,` on a line of arguments."""
    bare = value.rstrip(",)")
    return _REFERENCE.fullmatch(bare) is not None and ("." in bare or bare != value)


def _plain_password(text: str, named: _Named, value: str) -> bool:
    """`password: correcthorse` on a line of its own, as in YAML; a type or a variable is not one."""
    before = text[max(0, named.begin - 40) : named.begin]
    alone = not before.rpartition("\n")[2].strip(" -\t\"'") and (len(before) == named.begin or "\n" in before)
    ordinary = _NOT_A_PASSWORD.fullmatch(value) is not None or any(word in value for word in _NAME_WORDS)
    return alone and named.sign == ":" and len(value) >= 8 and value.isalpha() and value.islower() and not ordinary


def _has_variety(value: str) -> bool:
    """Digits among letters, or letters of both cases and some length: not an ordinary word."""
    letters = _LETTER.search(value) is not None
    if letters and _ANY_DIGIT.search(value):
        return True
    return len(value) >= 16 and letters and value.lower() != value and value.upper() != value
