"""Settings of the server and of the client: every number a person may change, with its default.

Read from `BYLEAVE_*` variables, or from the TOML file named by `BYLEAVE_CONFIG`. Secrets are `SecretStr`, so that they
never reach a log. Nothing here opens any other file.
"""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import platformdirs
from pydantic import Field, SecretStr, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

DEFAULT_PORT = 8477
_ORIGIN = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?"
)
_SWITCH = {"true": "otlp", "1": "otlp", "false": "off", "0": "off"}

SandboxName = Literal["auto", "bwrap", "landlock", "seatbelt", "none"]
"""Backend that isolates commands; `auto` is the strongest that works."""


def default_home() -> Path:
    """Return the default state directory; `BYLEAVE_HOME` overrides it."""
    return Path(platformdirs.user_data_dir("byleave", appauthor=False))


class _Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="BYLEAVE_", extra="ignore", frozen=True, defer_build=True)

    home: Path = Field(default_factory=default_home, description="State directory.")
    telemetry: Literal["auto", "off", "otlp", "console"] = Field(
        default="auto",
        description="Spans and metrics: `auto` is on when an OTEL_EXPORTER_OTLP_*ENDPOINT variable names a collector.",
    )

    @field_validator("telemetry", mode="before")
    @classmethod
    def _yes_or_no(cls, value: object) -> object:
        return _SWITCH.get(str(value).strip().lower(), value)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        class _Where(BaseSettings):
            model_config = SettingsConfigDict(env_prefix="BYLEAVE_", extra="ignore")
            config: Path | None = None

        where = _Where().config
        sources = (init_settings, env_settings)
        return (*sources, TomlConfigSettingsSource(settings_cls, where)) if where else sources


def _origin(text: str) -> str:
    """Normalize an origin as browsers write it; refuse anything that could be more than one page's origin."""
    found = _ORIGIN.fullmatch(text.lower().removesuffix("/"))
    if found is None:
        raise ValueError(f"{text!r} is not an origin; write it as https://HOST or https://HOST:PORT")
    scheme, host, port = found["scheme"], found["host"], found["port"]
    usual = {"http": "80", "https": "443"}[scheme]
    return f"{scheme}://{host}" + (f":{int(port)}" if port and port.lstrip("0") != usual else "")


def _proxy(text: str) -> str:
    """Normalize an address or network; refuse one that holds everybody."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{error}; write an address, or a network such as 10.0.0.0/8") from None
    if network.prefixlen == 0:
        raise ValueError(f"{text!r} would believe everybody; list the addresses of your proxies")
    return str(network)


class ServerSettings(_Settings):
    """Settings of `byleave serve`."""

    database_url: str | None = Field(
        default=None,
        repr=False,
        description="Where the record is: `sqlite:////path/to/byleave.db` or `postgresql://USER:PASSWORD@HOST/NAME`. "
        "Left out: SQLite in the state directory.",
    )
    bus_url: str | None = Field(
        default=None,
        repr=False,
        description="What wakes the other servers of a record in PostgreSQL: `nats://HOST:4222`, or a direct "
        "connection `postgresql://…` if a pooler is before the database. Left out: the database itself.",
    )
    durability: Literal["full", "normal"] = Field(
        default="full",
        description="`normal` may lose the last commits on power loss, never on a crash of this server; in "
        "PostgreSQL also when that crashes.",
    )
    retention_days: int = Field(
        default=0,
        ge=0,
        le=36500,
        description="Days after which ended calls, their approvals and events are removed; 0 keeps everything.",
    )
    retention_mb: int = Field(
        default=0,
        ge=0,
        description="Megabytes the record may use before the oldest calls are removed, never those of the last day; "
        "0 for no limit.",
    )
    secret: SecretStr | None = Field(default=None, description="Shared secret that signs tokens (HS256).")
    previous_secret: SecretStr | None = Field(
        default=None,
        description="The secret before this one, for one start: what it sealed of the record is sealed anew.",
    )
    jwks_url: str | None = Field(default=None, description="Where your identity provider publishes its keys.")
    public_key: str | None = Field(default=None, description="A PEM public key that verifies tokens.")
    token_audience: str | None = Field(default=None, description="Required `aud` of a token.")
    token_issuer: str | None = Field(default=None, description="Required `iss` of a token.")
    token_user_claim: str = Field(
        default="sub", min_length=1, description="Claim that names the user: `sub`, `email`, `preferred_username`."
    )
    token_scope_claims: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("scope",), description="Claims that hold scopes, comma separated: `scope`, `scp`, `permissions`."
    )
    token_scope_prefix: str = Field(
        default="", description="What stands before our scopes there: with `byleave:` the scope chat is `byleave:chat`."
    )
    token_role_claims: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("roles", "groups"),
        description="Claims that hold roles or groups, comma separated; a dot leads inside: `realm_access.roles`.",
    )
    token_roles: Annotated[dict[str, tuple[str, ...]], NoDecode] = Field(
        default={},
        description="Scopes by role or group: `developers=chat approve execute, nightly=agent`. With it, only people "
        "with chat and approve may use the page.",
    )
    oidc_issuer: str | None = Field(
        default=None, description="Identity provider that people sign in with on the page (OpenID Connect): its issuer."
    )
    oidc_client_id: str | None = Field(default=None, description="This server's client id there.")
    oidc_client_secret: SecretStr | None = Field(
        default=None, description="Its secret there; left out: a public client, which PKCE protects."
    )
    oidc_name: str | None = Field(default=None, description="The provider's name on the page; left out: its host.")
    oidc_scopes: str = Field(default="openid profile email", description="Scopes that are asked of the provider.")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("127.0.0.1", "localhost", "::1"), description="Names this server answers to, comma separated."
    )
    public_url: str | None = Field(
        default=None,
        description="Address at which other devices reach this server (`https://byleave.example.com`): for links to "
        "a phone, and in notifications. It answers to that name as well.",
    )
    sign_in_hours: float = Field(
        default=12,
        gt=0,
        le=720,
        description="How long a browser stays signed in; never longer than what made its link.",
    )
    page_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Other pages that may show the chat, by origin (`https://intranet.example`), comma separated; with "
        "a bearer token only, never with the cookie.",
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Addresses or networks of your reverse proxies, comma separated: `X-Forwarded-For`, `-Proto` and "
        "`-Host` are believed from these only.",
    )
    notify_url: SecretStr | None = Field(
        default=None,
        description="Where to post that something waits for approval: an ntfy topic, a Slack webhook, or any address "
        "that takes JSON, such as a relay to e-mail.",
    )
    notify_format: Literal["auto", "ntfy", "slack", "json"] = Field(
        default="auto", description="The form of that post; `auto` goes by the address."
    )
    notify_after_seconds: float = Field(
        default=20,
        ge=0,
        description="How long a question waits for an answer before anybody is notified, by push message or by "
        "BYLEAVE_NOTIFY_URL.",
    )
    notify_detail: Literal["level", "project", "request"] = Field(
        default="level",
        description="What a notification tells: the risk level alone; also the project's name; or also what is asked, "
        "in one line with secrets masked.",
    )
    push_allow_private: bool = Field(
        default=False,
        description="Whether a browser's push service may be on a private network, also by plain http: for one of your "
        "own.",
    )
    metrics_token: SecretStr | None = Field(
        default=None,
        min_length=16,
        description="Bearer token that reads `/metrics`; left out: only programs on this machine do.",
    )
    drain_seconds: float = Field(
        default=0,
        ge=0,
        le=3600,
        description="How long a server that is told to stop still answers while load balancers turn to others; with "
        "one server leave it at 0.",
    )
    model: str = Field(default="offline", description="Which model the chat agent uses.")
    models: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Models that people may choose in a conversation beside `model`, comma separated. Agents with "
        "a model of their own have no choice.",
    )
    agents: Path | None = Field(
        default=None, description="More agents beside `chat`, each with its model, mode and tools: a TOML file."
    )
    run_steps: int = Field(default=50, ge=1, description="Most answers of the model in one run.")
    run_seconds: float = Field(
        default=1800, gt=0, description="Longest a run may work; waiting for a person does not count."
    )
    run_tokens: int = Field(default=2_000_000, ge=1, description="Most tokens one run may use, in and out together.")
    allowed_commands: Annotated[tuple[str, ...] | None, NoDecode] = Field(
        default=None, description="Commands agents may run, comma separated; left out: the built-in list."
    )
    policy: Path | None = Field(
        default=None, description="The organisation's rules for every call, a TOML file; they only tighten."
    )
    max_body_bytes: int = Field(default=1024 * 1024, ge=1024, description="Largest ordinary request body.")
    max_payload_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=1024,
        description="Largest body that carries a file: a result, or a call of an agent that runs elsewhere.",
    )
    medium_approval_seconds: int = Field(default=300, ge=1, description="Time to answer for MEDIUM.")
    high_approval_seconds: int = Field(default=600, ge=1, description="Time to answer for HIGH.")
    client_wait_seconds: float = Field(default=60, gt=0, description="How long a call waits for a machine.")
    queue_wait_seconds: float = Field(
        default=1800, gt=0, description="How long a call may wait in a machine's queue for others to end."
    )
    result_grace_seconds: float = Field(
        default=30,
        gt=0,
        description="How long past a tool's own timeout the server waits for its result; as long again after its start "
        "and a client's return.",
    )
    user_requests_per_second: float = Field(
        default=200,
        ge=0,
        description="Requests a user may send, on average; their agents as many beside. Each server counts its own; 0 "
        "for no limit.",
    )
    user_request_burst: int = Field(
        default=1000, ge=1, description="Requests a user may send at once, after a pause, and have unanswered."
    )
    user_open_calls: int = Field(
        default=1000,
        ge=0,
        description="Calls of a user that may wait or run at the same time; of their "
        "agents elsewhere as many beside; 0 for no limit.",
    )
    user_mb: int = Field(
        default=0,
        ge=0,
        description="Megabytes a user's calls, questions and events may use before further calls are refused; 0 for no "
        "limit.",
    )
    heartbeat_seconds: float = Field(default=15, gt=0, description="How often an idle stream says it is alive.")
    max_wait_seconds: int = Field(default=300, ge=1, description="Longest `?wait=` of a status request.")
    park_seconds: float = Field(
        default=5, ge=0, description="How long a run waits in memory for a person or a machine before it is parked."
    )
    lease_seconds: float = Field(default=15, gt=1, description="How long a run belongs to a worker that fell silent.")

    @field_validator("bus_url")
    @classmethod
    def _known_bus(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("nats://", "tls://", "postgresql://", "postgres://")):
            raise ValueError("a bus is nats://HOST:PORT, or postgresql://… for a direct connection to the database")
        return value

    @field_validator(
        "allowed_hosts",
        "allowed_commands",
        "page_origins",
        "trusted_proxies",
        "models",
        "token_scope_claims",
        "token_role_claims",
        mode="before",
    )
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("token_roles", mode="before")
    @classmethod
    def _roles(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = (part.partition("=") for part in value.split(",") if part.strip())
        return {role.strip(): tuple(scopes.split()) for role, _, scopes in pairs}

    @field_validator("page_origins")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_origin(one) for one in value)

    @field_validator("notify_url")
    @classmethod
    def _web_address(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            parts = urlsplit(value.get_secret_value())
            # The address is not quoted: it may hold a secret.
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("it is not a web address; write it as https://…")
        return value

    @field_validator("public_url")
    @classmethod
    def _public(cls, value: str | None) -> str | None:
        return None if value is None else _origin(value)

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_proxy(one) for one in value)

    @property
    def hosts(self) -> frozenset[str]:
        """Names this server answers to, without ports."""
        public = () if self.public_url is None else (urlsplit(self.public_url).hostname or "",)
        return frozenset(host.lower() for host in (*self.allowed_hosts, *public))

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'byleave.db'}"


class ClientSettings(_Settings):
    """Settings of the client on the user's machine (C6)."""

    server_url: str = Field(default=f"http://127.0.0.1:{DEFAULT_PORT}", description="Where the server is.")
    token: SecretStr | None = Field(default=None, description="The user's token.")
    command_timeout_seconds: int = Field(default=300, ge=1, le=300, description="Longest a command may run.")
    command_idle_seconds: int | None = Field(
        default=None, ge=1, description="End a command that prints nothing for so long; left out: its timeout alone."
    )
    max_file_bytes: int = Field(default=100 * 1024 * 1024, ge=1, description="Largest file read or written.")
    max_output_bytes: int = Field(default=1024 * 1024, ge=1024, description="Most output kept of a command.")
    concurrency: int = Field(default=3, ge=1, le=32, description="Executions at once; the rest queue in order.")
    queue_limit: int = Field(default=1000, ge=1, description="How many may queue.")
    approval_timeout_seconds: int = Field(default=300, ge=1, description="When an unanswered question is dropped.")
    cache_enabled: bool = Field(default=True, description="Whether repeated reads may be answered from memory.")
    cache_seconds: float = Field(default=300, ge=0, description="How long the cache remembers.")
    post_tries: int = Field(default=3, ge=1, description="Tries before a result waits for the next connection.")
    sandbox: SandboxName = Field(
        default="auto",
        description="What isolates commands; `auto`: the strongest that works here. Never a weaker one than you name.",
    )
    undo_days: float = Field(default=7, gt=0, description="How long what calls changed can be undone.")
    undo_bytes: int = Field(
        default=1024 * 1024 * 1024, ge=1024, description="Most that is kept on the disk to undo calls."
    )
    allowed_commands: Annotated[tuple[str, ...] | None, NoDecode] = Field(
        default=None, description="Commands this machine runs, comma separated; left out: the built-in list."
    )
    user_policy: Path | None = Field(
        default=None,
        description="Your rules, a TOML file; left out: `policy.toml` in the user's configuration directory.",
    )
    device_policy: Path | None = Field(
        default=None, description="This machine's rules, a TOML file; left out: `/etc/byleave/policy.toml`."
    )
    search_provider: Literal["searxng", "tavily", "brave"] | None = Field(
        default=None, description="Who answers search_web; left out: the first with a key or URL."
    )
    searxng_url: str | None = Field(default=None, description="Base URL of a SearXNG instance.")
    tavily_api_key: SecretStr | None = Field(default=None, description="Key for Tavily.")
    tavily_url: str = Field(default="https://api.tavily.com", description="Tavily's API.")
    brave_api_key: SecretStr | None = Field(default=None, description="Key for Brave Search.")
    brave_url: str = Field(default="https://api.search.brave.com", description="Brave Search's API.")
    search_allow_private: bool = Field(
        default=False,
        description="Whether the name of a search provider may lead to a private address, as that of a SearXNG on the "
        "home network does.",
    )

    @field_validator("allowed_commands", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value
