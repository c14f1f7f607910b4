"""Formats of secrets that are known by their form or place: provider keys, headers, URLs, key blocks, command lines.

Every format has a needle, a plain text that must occur before its pattern is tried, and a pattern that is bounded or
anchored on a literal: text without secrets costs a few plain searches, hostile text linear time. A format must never
fit a hash, a UUID or a lock file. Only data: `secrets` searches with it.
"""

import re
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Format:
    """A secret that is known by its form; group 1, if any, is the part that is masked."""

    kind: str
    needle: str
    source: str
    flags: int = 0
    also: str = ""
    """A second needle, without which the form means nothing; searched for in the lower-case text."""
    each: str = ""
    """What is masked within group 1, if not all of it."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        # Compiled when its needle is first seen: most never are, and a program must start quickly.
        return re.compile(self.source, self.flags)


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

_BASE64 = "[A-Za-z0-9+/=]"
_IS_KEY = "(?=[A-Za-z/]{0,39}?(?:[0-9+=]|[A-Z]{4})|[A-Za-z/]{40})"
_RUN = rf"(?:(?<![\\A-Za-z0-9+/=])|(?<=\\[nr])){_IS_KEY}{_BASE64}{{16,}}+"
"""A line of a key, whatever stands around it: names in code lack digits, or are shorter."""
_BEFORE_END = r"[^\nA-Za-z0-9]{0,8}(?:M\$)?(?:\n[^\n]{0,300}?|\\n)-----END "


KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
KEY_RUN = re.compile(_RUN)
SHORT_KEY_RUN = re.compile(rf"(?<![A-Za-z0-9+/=]){_BASE64}{{1,64}}(?=\W{{0,3}}\Z)")
"""At the end of the last line of a key."""


def _block(needle: str, begin: str) -> Format:
    """A private key from its first line on: each line's base64 is masked, so that line ends and numbers stay."""
    between = r"(?:(?!-----(?:BEGIN|END) |Private-MAC)[\s\S]){0,300}?"
    last = rf"(?:[^\n]{{0,8}}?(?:\n[^\n]{{0,300}}?(?<![A-Za-z0-9+/=])|\\n){_BASE64}{{1,64}}+(?={_BEFORE_END}))?"
    return Format("private-key", needle, rf"{begin}((?:{between}{_RUN})++{last})", each=rf"{_RUN}|{_BASE64}+\Z")


_DATABASES = r"(?:postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?|amqps?|mssql|clickhouse|cockroachdb)"


PLACES = (
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
    Format("url-password", "@tcp(", r"(?<![\w.-])[\w.-]{1,64}:([^\s@:/\"'`]{1,128})@tcp\("),
    Format("url-token", "://", r"://(?=[A-Za-z_-]{0,64}[0-9])([A-Za-z0-9_-]{20,256})@"),
    Format("url-signature", "ignature=", r"[?&;][Xx]-(?:Amz|Goog)-Signature=([0-9a-f]{32,1024})"),
    Format("url-signature", "sig=", r"[?&;=]sig=([A-Za-z0-9%+/_-]{30,128}=?)"),
    Format("url-key", "key=", r"[?&]key=(?=[A-Za-z_-]{0,64}[0-9])([A-Za-z0-9_-]{20,128})"),
    _block("PRIVATE KEY", r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"),
    _block("PuTTY-User-Key", r"Private-Lines: [0-9]{1,4}"),
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


WORDS = (
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
    Format("password", "password ", r"(?i)password ['\"]([^'\"\s]{3,128})['\"]"),
    Format("password", "identified by", r"(?i)\b(?:user|role)\b[^;\n]{0,200}?\bidentified by '([^'\s]{3,128})'"),
    Format(
        "password",
        "env ",
        r"(?<!\w)ENV[ \t]{1,4}[A-Z0-9_]{0,60}(?:PASSWORD|PASSWD|_PASS|SECRET|TOKEN|API_?KEY)[ \t]{1,4}"
        r"([^\s=<>$\[]{4,256})",
    ),
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
    Format(
        "redis-password",
        "requirepass",
        r"requirepass[ \t]{1,8}[\"']?(?=[^\s\"']{0,64}(?:[0-9]|[\"']?[\s$]*$))([^\s\"'<>\[]{4,256})",
        re.MULTILINE,
    ),
    Format("openssl-password", "-pass", r"-pass(?:in|out)?\s{1,4}[\"']?pass:([^\s\"']{1,256})"),
    Format(
        "chpasswd",
        "chpasswd",
        r"echo\s{1,4}[\"']?[\w-]{1,64}:([^\s\"'|]{3,128})[\"']?\s{0,4}\|\s{0,4}(?:sudo\s{1,4})?chpasswd",
    ),
)
"""The needle is searched for in the lower-case text."""
KEYS: tuple[Format, ...] = (
    *(_key(kind, prefix, body) for kind, prefixes, body in _PREFIXED for prefix in prefixes.split()),
    *(_bare(kind, prefix, body) for kind, prefixes, body in _BARE for prefix in prefixes.split()),
)
BY_FORM = frozenset(form.kind for form in (*KEYS, *PLACES)) | {"authorization", "bearer"}
