"""Settings that tests pass by name, typed as the settings classes type them."""

from pathlib import Path
from typing import Literal, TypedDict

from pydantic import SecretStr

from byleave.settings import SandboxName


class ServerOptions(TypedDict, total=False):
    """Fields of `ServerSettings` that some test changes."""

    home: Path
    bus_url: str | None
    database_url: str | None
    durability: Literal["full", "normal"]
    retention_days: int
    retention_mb: int
    secret: SecretStr | None
    jwks_url: str | None
    public_key: str | None
    token_audience: str | None
    token_issuer: str | None
    token_user_claim: str
    token_scope_claims: tuple[str, ...]
    token_scope_prefix: str
    token_role_claims: tuple[str, ...]
    token_roles: dict[str, tuple[str, ...]]
    oidc_issuer: str | None
    oidc_client_id: str | None
    oidc_client_secret: SecretStr | None
    oidc_name: str | None
    allowed_hosts: tuple[str, ...]
    public_url: str | None
    sign_in_hours: float
    notify_url: SecretStr | None
    notify_format: Literal["auto", "ntfy", "slack", "json"]
    notify_after_seconds: float
    notify_detail: Literal["level", "project", "request"]
    push_allow_private: bool
    page_origins: tuple[str, ...]
    trusted_proxies: tuple[str, ...]
    metrics_token: SecretStr | None
    drain_seconds: float
    model: str
    models: tuple[str, ...]
    agents: Path | None
    run_seconds: float
    run_tokens: int
    policy: Path | None
    max_body_bytes: int
    max_payload_bytes: int
    medium_approval_seconds: int
    high_approval_seconds: int
    client_wait_seconds: float
    user_requests_per_second: float
    user_request_burst: int
    user_open_calls: int
    user_mb: int
    heartbeat_seconds: float
    max_wait_seconds: int
    park_seconds: float
    lease_seconds: float


class ClientOptions(TypedDict, total=False):
    """Fields of `ClientSettings` that some test changes."""

    server_url: str
    token: SecretStr | None
    max_file_bytes: int
    max_output_bytes: int
    concurrency: int
    queue_limit: int
    approval_timeout_seconds: int
    cache_enabled: bool
    post_tries: int
    sandbox: SandboxName
    user_policy: Path | None
    device_policy: Path | None
