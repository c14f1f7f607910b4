"""What masking finds, as tables: forms of providers, places, names in every notation; and what it must leave alone.

The values are made up here, piece by piece, so that no scanner takes this file for a leak.
"""

import base64
import hashlib
import random
import string
import uuid
from pathlib import Path

import pytest

from byleave.gate import MASK_PREFIX, mask_text
from byleave.gate.text.secrets import mask_arguments

pytestmark = pytest.mark.promise("S")

ROOT = Path(__file__).parents[3]
DICE = random.Random(7)
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
MIXED = string.ascii_letters + string.digits


def some(length: int, alphabet: str = MIXED) -> str:
    # A digit early, as any generated value of some length has.
    return "".join(DICE.choices(alphabet, k=length - 2)) + DICE.choice("23456789") + DICE.choice(alphabet)


UUID = str(uuid.UUID(int=DICE.getrandbits(128), version=4))


def survives(secret: str, masked: str) -> bool:
    """Whether some of a secret is still there: all of it, or twelve characters in a row."""
    size = min(len(secret), 12)
    return any(secret[at : at + size] in masked for at in range(len(secret) - size + 1))


PROVIDERS = {
    "aws": ("AKIA ASIA ABIA", 16, UPPER),
    "bedrock": ("ABSK", 110, MIXED),
    "github": ("ghp_ gho_ ghu_ ghs_ ghr_", 36, MIXED),
    "github fine-grained": ("github_pat_", 82, MIXED),
    "gitlab": ("glpat- gldt- glrt- glptt- glft- glsoat- glimt- glagent- glcbt- gloas- glffct- GR1348941", 20, MIXED),
    "slack": ("xoxb- xoxp- xoxa-2- xoxr- xoxs- xoxo- xoxe.xoxp-1- xoxe-1- xoxc- xoxd- xapp-1-", 40, MIXED),
    "stripe": ("sk_live_ rk_live_ sk_test_ rk_test_ whsec_", 24, MIXED),
    "openai": ("sk- sk-proj- sk-svcacct- sk-admin- sk-or-v1-", 48, MIXED),
    "short sk-": ("sk-", 22, MIXED),
    "anthropic": ("sk-ant-api03- sk-ant-admin01-", 93, MIXED),
    "groq": ("gsk_", 52, MIXED),
    "perplexity": ("pplx-", 48, MIXED),
    "xai": ("xai-", 80, MIXED),
    "replicate": ("r8_", 37, MIXED),
    "tavily": ("tvly- tvly-dev-", 32, MIXED),
    "google": ("AIza", 35, MIXED),
    "google token": ("ya29. GOCSPX- 1//0", 60, MIXED),
    "sendinblue": ("xkeysib-" + "a1" * 32 + "-", 16, MIXED),
    "twilio": ("SK", 32, HEX),
    "npm": ("npm_", 36, MIXED),
    "pypi": ("pypi-AgEIcHlwaS5vcmc", 120, MIXED),
    "rubygems": ("rubygems_", 48, HEX),
    "docker": ("dckr_pat_ dckr_oat_", 32, MIXED),
    "huggingface": ("hf_ api_org_", 34, MIXED),
    "digitalocean": ("dop_v1_ doo_v1_ dor_v1_", 64, HEX),
    "heroku": ("HRKU-AA", 58, MIXED),
    "shopify": ("shpat_ shpca_ shppa_ shpss_", 32, HEX),
    "square": ("sq0atp- sq0csp-", 43, MIXED),
    "vault": ("hvs. hvb.", 95, MIXED),
    "doppler": ("dp.pt. dp.st.", 43, MIXED),
    "pulumi": ("pul-", 40, HEX),
    "newrelic": ("NRAK-", 27, UPPER),
    "sentry": ("sntrys_eyJ sntryu_", 64, HEX),
    "linear": ("lin_api_", 40, MIXED),
    "notion": ("secret_ ntn_", 46, MIXED),
    "figma": ("figd_", 40, MIXED),
    "atlassian": ("ATATT3xFfGF0", 180, MIXED),
    "bitbucket": ("ATBB", 32, MIXED),
    "databricks": ("dapi", 32, HEX),
    "planetscale": ("pscale_tkn_ pscale_pw_", 43, MIXED),
    "shippo": ("shippo_live_", 40, HEX),
    "easypost": ("EZAK", 54, MIXED),
    "fly": ("fo1_", 43, MIXED),
    "supabase": ("sbp_", 40, HEX),
    "netlify": ("nfp_", 36, MIXED),
    "artifactory": ("AKCp", 69, MIXED),
    "alibaba": ("LTAI", 20, MIXED),
    "tencent": ("AKID", 32, MIXED),
    "clojars": ("CLOJARS_", 60, HEX),
    "1password": ("ops_eyJ", 260, MIXED),
    "sourcegraph": ("sgp_", 40, HEX),
    "contentful": ("CFPAT-", 43, MIXED),
    "hubspot": ("pat-na1-" + UUID[:-12], 12, HEX),
    "age": ("AGE-SECRET-KEY-1", 58, UPPER),
    "okta": ("SSWS_00", 40, MIXED),
}
FORMS = [
    (kind, prefix.replace("SSWS_", "SSWS "), some(length, alphabet))
    for kind, (prefixes, length, alphabet) in PROVIDERS.items()
    for prefix in prefixes.split()
]


@pytest.mark.parametrize(("kind", "prefix", "rest"), FORMS, ids=[f"{kind}: {prefix[:14]}" for kind, prefix, _ in FORMS])
def test_key_of_a_provider_is_masked_wherever_it_stands(kind: str, prefix: str, rest: str) -> None:
    secret = prefix + rest
    for around in ("{}", "key {} end", '"{}",', "backup-{}.txt", "x={}", "https://example.org/{}/a", "({})"):
        assert not survives(rest, mask_text(around.format(secret))), around


PLACES = {
    "jwt": ("{}", "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0." + some(43)),
    "jwt without signature": ("{}", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4ifQ"),
    "jwe": ("{}", f"eyJhbGciOiJSU0EtT0FFUCJ9.{some(80)}.{some(16)}.{some(80)}.{some(22)}"),
    "telegram": ("https://api.telegram.org/bot{}/getMe", "7110201543:AA" + some(33)),
    "discord": ("discord.run('{}')", "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ." + some(27)),
    "discord webhook": ("https://discord.com/api/webhooks/123456789012345678/{}", some(68)),
    "slack webhook": ("https://hooks.slack.com/services/{}", "T12345678/B12345678/" + some(24)),
    "sendgrid": ("{}", f"SG.{some(22)}.{some(43)}"),
    "mailgun": ("mailgun: {}", "key-" + some(32, HEX)),
    "mailchimp": ("mailchimp {}", some(32, HEX) + "-us14"),
    "terraform": ("{}", f"{some(14)}.atlasv1.{some(65)}"),
    "airtable": ("{}", f"pat{some(14)}.{some(64, HEX)}"),
    "azure storage": ("AccountName=x;AccountKey={};EndpointSuffix=core.windows.net", some(86) + "=="),
    "azure sas": ("https://x.blob.core.windows.net/c?sv=2022&sp=r&sig={}", some(40) + "%3D"),
    "azure secret": ("x {}", "abc8Q~" + some(34)),
    "service account": ('"private_key": "-----BEGIN PRIVATE KEY-----\\n{}\\n-----END', some(64) + "\\n" + some(64)),
    "encrypted key": (
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,01\n\n{}\n",
        some(64),
    ),
    "pgp key": ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n\n{}\n=abcd\n", some(64)),
    "putty key": ("PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 2\n{}\nPrivate-MAC: x", some(64) + "\n" + some(64)),
    "key in base64": ("client-key-data: {}", base64.b64encode(b"-----BEGIN RSA PRIVATE KEY-----\nabcdefghij").decode()),
    "crypt": ("root:{}:19000:0:99999:7:::", f"$6${some(16)}${some(86)}"),
    "yescrypt": ("root:{}:19000:0:99999:7:::", f"$y$j9T${some(22)}${some(43)}"),
    "htpasswd": ("bob:{}", f"$apr1${some(8)}${some(22)}"),
    "bcrypt": ("bob:{}", f"$2y$10${some(53)}"),
    "pgpass": ("localhost:5432:mydb:bob:{}", "hunter2x"),
    "netrc": ("machine h login u password {}", "letmein"),
    "docker config": ('{{"auths": {{"https://index.docker.io/v1/": {{"auth": "{}"}}}}}}', "dXNlcjpodW50ZXIyaHVudGVy"),
    "database": ("mysql://u:{}@h/x", "p@ssw0rd"),
    "slash in password": ("postgres://bob:{}@db/x", "hu/nter2"),
    "oracle": ("jdbc:oracle:thin:scott/{}@//h:1521/x", "tiger123"),
    "jdbc": ("jdbc:mysql://h/db?user=u&password={}", "hunter2x"),
    "signed url": ("https://b.s3.amazonaws.com/o?X-Amz-Signature={}", some(64, HEX)),
    "url key": ("https://maps.example/api?key={}", some(24)),
    "connection string": ("Server=x;Database=y;User Id=z;Password={};", "hunter2!"),
    "odbc": ("DRIVER={{x}};PWD={}", "hunter2!x"),
    "header": ("Authorization: {}", UUID),
    "proxy header": ("Proxy-Authorization: Basic {}", "dXNlcjpodW50ZXIy"),
    "python header": ('{{"Authorization": f"token {}"}}', some(40, HEX)),
    "api key header": ("X-Api-Key: {}", some(32)),
    "cookie": ("Cookie: sessionid={}; a=b", some(32)),
    "curl -u": ("curl -s -u bob:{} https://x", "hunter2"),
    "curl --user": ('curl -s --user "bob:{}" https://x', "hu nter2"),
    "curl over lines": ("curl -X POST https://x \\\n  -d 'a' \\\n  -u bob:{}", "hunter2x"),
    "mysql": ("mysqldump -u root -p{} db", "S3cretPw"),
    "sshpass": ("sshpass -p {} ssh x", "hunter2"),
    "docker login": ("docker login -u bob -p {} reg", "hunter2"),
    "redis-cli": ("redis-cli -h x -a {} ping", "hunter2"),
    "redis.conf": ("requirepass {}\nport 1", "correcthorse"),
    "redis-server": ("redis-server --requirepass {} --port 1", "hunter2"),
    "mail settings": ('auth: {{ user: "a@b.c", pass: "{}" }}', "Sup3rS3cret99x"),
    "openssl": ("openssl enc -passin pass:{}", "hunter2"),
    "chpasswd": ('echo "bob:{}" | sudo chpasswd', "hunter2"),
    "npm auth": ("//registry.example/:_auth = {}", some(30)),
    "npm config": ("npm config set //r/:_authToken {}", some(30)),
    "kubernetes": ("apiVersion: v1\nkind: Secret\ndata:\n  foo: {}\n", "aHVudGVyMmh1bnRlcjI="),
    "kubernetes, data first": ("apiVersion: v1\ndata:\n  foo: {}\nkind: Secret\n", "aHVudGVyMmh1bnRlcjI="),
    "kubernetes, folded": ("kind: Secret\ndata:\n  .cfg: |\n    {}\n", "eyJhdXRocyI6eyJodHRwczovL2V4YW1wbGUv"),
    "kubernetes text": ("kind: Secret\nstringData:\n  foo: {}\n", "hunterhunter"),
    "kubernetes json": ('{{"kind": "Secret", "data": {{"foo": "{}"}}}}', "aHVudGVyMmh1bnRlcjI="),
    "kubernetes variable": ("- name: DB_PASSWORD\n  value: {}", "hunter2hunter"),
    "task definition": ('{{"name": "DB_PASSWORD", "value": "{}"}}', "hunter2x"),
    "php": ("define( 'DB_PASSWORD', '{}' );", "hunter2"),
    "maven": ("<server><username>u</username><password>{}</password></server>", "hunter2"),
    "setting with signs": ("DB_PASSWORD={}", "p&ss;w(rd!9"),
    "setting with spaces": ('PASSWORD="{}"', "my secret pw 1"),
    "setting of digits": ("password: {}", "12345678"),
    "escaped quote": ('password = "{}"', 'pa\\"ss9word'),
    "backtick": ("const password = `{}`", "hunter2xyz"),
    "dollar": ('password: "{}"', "$ecret123!"),
    "plain word in yaml": ("db:\n  password: {}\n", "correcthorse"),
    "rails": ("secret_key_base: {}", some(128, HEX)),
    "grep": ("config.yml:12:password: {}", "hunter2x"),
    "diff": ("+DB_PASSWORD={}", "hunter2x"),
    "query": ("https://x/y?access_token={}&a=1", some(24)),
}


@pytest.mark.parametrize(("form", "secret"), PLACES.values(), ids=PLACES.keys())
def test_secret_in_its_place_is_masked(form: str, secret: str) -> None:
    masked = mask_text(form.format(secret))
    assert MASK_PREFIX in masked
    assert not survives(secret, masked)
    assert mask_text(masked) == masked, "masking again changes nothing"


@pytest.mark.parametrize(("token", "kind"), [("rk_live_" + some(24), "stripe-key"), (some(30), "url-token")])
def test_token_in_an_address_is_masked_once_and_keeps_its_kind(token: str, kind: str) -> None:
    masked = f"https://{MASK_PREFIX}{kind}]@github.com/a"
    assert mask_text(f"https://{token}@github.com/a") == masked
    assert mask_text(masked) == masked


NAMES = [
    "password",
    "passwd",
    "pwd",
    "db_pass",
    "DB_PASS",
    "api_key",
    "apikey",
    "apiKey",
    "API_KEY",
    "secret_key",
    "secretKey",
    "client_secret",
    "clientSecret",
    "access_token",
    "accessToken",
    "auth_token",
    "AUTH_TOKEN",
    "private_token",
    "credentials",
    "encryption_key",
    "signing_key",
    "passphrase",
    "jwt_secret",
    "SECRET_KEY_BASE",
    "adminPassword",
    "DATABASE_PASSWORD",
    "smtp_pass",
    "pass",
    "pw",
    "psk",
    "DB_PW",
    "wifi_psk",
    "requirepass",
    "password_prod",
]
NOTATIONS = {
    "env": "{}={}",
    "yaml": "{}: {}",
    "quoted yaml": '{}: "{}"',
    "json": '{{"{}": "{}", "x": 1}}',
    "toml": '{} = "{}"',
    "ini": "{} = {}",
    "xml": "<{}>{}</x>",
    "xml attribute": '<add key="{}" value="{}" />',
    "properties": "app.{}={}",
    "php": "define('{}', '{}');",
    "php array": "'{}' => '{}',",
    "javascript": "  {}: '{}',",
    "go": '{} := "{}"',
    "c#": 'string {} = "{}";',
    "option": "tool --{}={}",
    "json in a string": '\\"{}\\": \\"{}\\"',
    "call": 'set("{}", "{}")',
    "argument": "f({}={})",
    "javascript pair": '{{name: "{}", value: "{}"}}',
}


@pytest.mark.parametrize(("form", "secret"), PLACES.values(), ids=PLACES.keys())
def test_secret_is_masked_in_long_text_as_in_short(form: str, secret: str) -> None:
    text = form.format(secret)
    assert mask_text(f"{'word ' * 80}\n{text}") == f"{'word ' * 80}\n{mask_text(text)}"


@pytest.mark.parametrize("name", NAMES)
def test_value_behind_a_telling_name_is_masked_in_every_notation(name: str) -> None:
    secret = some(12)
    left = [notation for notation, form in NOTATIONS.items() if secret in mask_text(form.format(name, secret))]
    assert left == []


@pytest.mark.parametrize(
    ("arguments", "secret"),
    [
        (["curl", "-u", "bob:hunter2", "https://x"], "hunter2"),
        (["mysql", "-phunter2"], "hunter2"),
        (["/usr/bin/mysqldump", "-u", "root", "-phunter2"], "hunter2"),
        (["sshpass", "-p", "hunter2", "ssh", "x"], "hunter2"),
        (["redis-cli", "-a", "hunter2"], "hunter2"),
        (["tool", "--password", "correcthorse"], "correcthorse"),
        (["tool", "--api-key", "correcthorse"], "correcthorse"),
        (["tool", "--pass", "correcthorse"], "correcthorse"),
        (["az", "-p", "correcthorse"], "correcthorse"),
        (["echo", "TOKEN=hunter2x9Q"], "hunter2x9Q"),
    ],
)
def test_secret_argument_of_a_command_is_masked(arguments: list[str], secret: str) -> None:
    masked = mask_arguments(arguments)
    assert len(masked) == len(arguments)
    assert secret not in " ".join(masked)


@pytest.mark.parametrize(
    "arguments",
    [
        ["docker", "run", "-u", "1000:1000"],
        ["curl", "-u", "bob"],
        ["curl", "-u", "1:2"],
        ["mysql", "-p"],
        ["tool", "--password", "-n"],
        [],
    ],
)
def test_ordinary_arguments_stay(arguments: list[str]) -> None:
    assert mask_arguments(arguments) == arguments


# What is not a secret


def lock_files() -> dict[str, str]:
    def sha(size: int) -> str:
        return DICE.randbytes(size).hex()

    names = [
        "js-tokens",
        "jsonwebtoken",
        "passport",
        "object-keys",
        "csrf-tokens",
        "keyv",
        "auth-token",
        "secretstorage",
    ]
    package_lock = "".join(
        f'    "node_modules/{name}{n}": {{\n      "version": "{n}.0.1",\n      "resolved": '
        f'"https://registry.example.org/{name}/-/{name}-4.0.0.tgz",\n      "integrity": '
        f'"sha512-{base64.b64encode(DICE.randbytes(64)).decode()}",\n      "dependencies": {{"{name}": "4"}}\n    }},\n'
        for n in range(40)
        for name in names
    )
    yarn = "".join(
        f'"{name}@npm:^{n}.0.0":\n  version: {n}.0.1\n  checksum: 10/{sha(64)}\n  languageName: node\n\n'
        for n in range(40)
        for name in names
    )
    uv = "".join(
        f'[[package]]\nname = "{name}"\nsource = {{ registry = "https://example.org/simple" }}\nsdist = {{ url = '
        f'"https://files.example.org/{sha(1)}/{sha(30)}/{name}.tar.gz", hash = "sha256:{sha(32)}", size = 79 }}\n'
        for name in names * 20
    )
    go_sum = "".join(
        f"github.com/foo/{name} v1.{n}.0 h1:{base64.b64encode(DICE.randbytes(32)).decode()}\n"
        for n in range(40)
        for name in names
    )
    return {
        "package-lock": package_lock,
        "yarn.lock": yarn,
        "uv.lock": uv,
        "go.sum": go_sum,
        "hashes": "".join(f"{hashlib.sha256(bytes([n])).hexdigest()}  token-{n}.txt\n" for n in range(200)),
        "md5": "".join(f"key-{sha(16)} SECRET {sha(16)}\n" for _ in range(200)),
        "uuids": "\n".join(str(uuid.UUID(int=DICE.getrandbits(128), version=4)) for _ in range(300)),
        "images": "\n".join(
            f'<img src="data:image/png;base64,{base64.b64encode(DICE.randbytes(3000)).decode()}">' for _ in range(20)
        ),
        "base64 lines": "\n".join(base64.b64encode(DICE.randbytes(57)).decode() for _ in range(400)),
        "git log": "".join(
            f"commit {sha(20)}\nAuthor: A <a@example.org>\n\n    Rotate the token key\n\nindex {sha(4)}..{sha(4)}\n"
            for _ in range(100)
        ),
    }


@pytest.mark.parametrize(("name", "text"), lock_files().items(), ids=lambda value: value if len(value) < 20 else "")
def test_lock_files_hashes_and_uuids_are_left_alone(name: str, text: str) -> None:
    assert mask_text(text) == text


@pytest.mark.parametrize(
    "path",
    ["requirements.lock", "schema/package-lock.json", "pyproject.toml", "src/byleave/gate/names.toml", "README.md"],
)
def test_files_of_this_repository_are_left_alone(path: str) -> None:
    text = (ROOT / path).read_text("utf-8")
    assert mask_text(text) == text


def test_the_page_is_left_alone() -> None:
    for path in sorted((ROOT / "src/byleave/server/page").rglob("*.*")):
        if path.suffix in (".js", ".css", ".html"):
            text = path.read_text("utf-8")
            assert mask_text(text) == text, path.name


CODE = """\
password = get_password()
token: str
api_key=os.environ["X"]
if token == None: raise ValueError
self.password = password
def login(username: str, password: str, *, token: Token | None = None) -> Session: ...
login(username=username, password=password, token=self.token)
            BYLEAVE_TOKEN=token,
SECRET_KEY = os.getenv("SECRET_KEY")
private_key: ed25519.Ed25519PrivateKey, public_key: bytes
password: Optional[SecretStr] = Field(default=None, min_length=8)
tokens = tokenizer.encode(text, max_tokens=4096)
for key, value in secrets.items(): print(key)
META_KEY = "io.example/protocolVersion"
PRIMARY_KEY = "user_id_2"
CACHE_KEY = f"user:{user_id}:v2"
headers = {"Authorization": f"Bearer {token}"}
const { password, token } = req.body;
const answer = await fetch(path, { credentials: "same-origin", ...options });
interface Login { password: string; token?: string }
user.password_digest = bcrypt.hash(password, 10);
<input type="password" name="password" placeholder="Your password" autocomplete="new-password">
curl -u "$USER:$PASSWORD" https://example.org
curl -H "Authorization: Bearer $TOKEN" -H "X-Api-Key: <your key>" https://example.org
docker run -p 8080:80 -u 1000:1000 nginx
mysql -u root -p mydb
export PASSWORD="${PASSWORD:?not set}"
DB_PASSWORD=$(cat /run/secrets/db)
password: {{ .Values.password }}
token: ${{ secrets.GITHUB_TOKEN }}
assert response.cookies["session"] == ""
docker://alpine:3.18@sha256:e7d88de73db3d3fd9b2d63aa7f447a10fd0220b7cbf39803c803f2aa9ba256b3
http://localhost:8080/users@example.org
.token-keyword-secret { --key-color: #aabbcc11; animation: sk-fade-in-and-out-with-delay 2s }
CURLOPT_OPTIONS = ['CURLOPT_PASSWORD', 'CURLOPT_READDATA']
Environment variables in the form KEY=VALUE.
The password is stored as a hash; the token is base64-encoded.
kind: ExternalSecret
-----BEGIN CERTIFICATE-----
MIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ
-----END CERTIFICATE-----
"""


@pytest.mark.parametrize("line", CODE.splitlines())
def test_code_about_secrets_is_left_alone(line: str) -> None:
    assert mask_text(line) == line


@pytest.mark.parametrize("prefix", ["+", "-", "  ", "12\t", "src/a.py:3:"])
def test_code_about_secrets_is_left_alone_in_diffs_and_listings(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in CODE.splitlines())
    assert mask_text(text) == text
