"""ClaimMap: which user and which scopes the claims of a token stand for, by the operator's settings.

Identity providers name things differently: `scope` or `scp` or `permissions`, with or without a prefix, or only the
groups a person is in. Whatever is not mapped gives nothing. Nothing here trusts a claim that was not verified.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from byleave.protocol.errors import ConfigurationError, RefusedError
from byleave.protocol.states import Scope
from byleave.server.errors import Unauthenticated
from byleave.settings import ServerSettings

LONGEST_USER = 200
MOST_NAMES = 1000
"""Names of one claim that are looked at; a person may be in many groups."""
EMAIL = "email"


def is_user_id(value: object) -> bool:
    """True if this can name a user."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_USER and value.isprintable() and value == value.strip()


@dataclass(frozen=True, slots=True)
class ClaimMap:
    """The operator's mapping."""

    user_claim: str = "sub"
    scope_claims: tuple[str, ...] = ("scope",)
    scope_prefix: str = ""
    role_claims: tuple[str, ...] = ()
    roles: Mapping[str, frozenset[Scope]] | None = None
    """Scopes by role or group; None if roles mean nothing here."""

    @classmethod
    def of(cls, settings: ServerSettings) -> "ClaimMap":
        known = frozenset(scope.value for scope in Scope)
        for role, names in settings.token_roles.items():
            if not role or not names or not known.issuperset(names):
                raise ConfigurationError(
                    f"BYLEAVE_TOKEN_ROLES gives the role {role!r} no scopes, or unknown ones.",
                    hint=f"Write ROLE=chat approve, OTHER=agent; the scopes are {', '.join(sorted(known))}.",
                )
        roles = {role: frozenset(map(Scope, names)) for role, names in settings.token_roles.items()}
        return cls(
            settings.token_user_claim,
            settings.token_scope_claims,
            settings.token_scope_prefix,
            settings.token_role_claims,
            roles or None,
        )

    @property
    def wanted(self) -> frozenset[str]:
        """The first parts of the claims that say who somebody is."""
        names = [self.user_claim, *(self.role_claims if self.roles else ())]
        return frozenset(name.partition(".")[0] for name in names)

    def user(self, claims: Mapping[str, Any]) -> str:
        """The user that the claims name."""
        user = _found(claims, self.user_claim)
        if not is_user_id(user):
            raise Unauthenticated(
                f"The token's `{self.user_claim}` cannot name a user.",
                hint="BYLEAVE_TOKEN_USER_CLAIM says which claim does; it is 1 to 200 printable characters.",
            )
        # Anybody could else register with the address of another.
        if self.user_claim == EMAIL and claims.get("email_verified") is not True:
            raise Unauthenticated(
                "The identity provider has not verified this e-mail address.",
                hint="Verify it there, or let BYLEAVE_TOKEN_USER_CLAIM name another claim.",
            )
        return cast(str, user)

    def scopes(self, claims: Mapping[str, Any]) -> frozenset[Scope]:
        """The scopes that the claims give, as scopes or by roles. Those of other systems are ignored."""
        named = {name for claim in self.scope_claims for name in _names(_found(claims, claim))}
        given = (scope for scope in Scope if f"{self.scope_prefix}{scope}" in named)
        return frozenset(given) | self._by_role(claims)

    def page_scopes(self, claims: Mapping[str, Any], needed: frozenset[Scope]) -> None:
        """Refuse a person whose roles do not open the page. If no roles are mapped, it is open to all who sign in."""
        if self.roles is not None and not needed <= self._by_role(claims):
            raise RefusedError(
                "Your account may not use Byleave: none of its roles gives both chat and approve.",
                hint="Ask whoever runs this server; BYLEAVE_TOKEN_ROLES says which roles do.",
            )

    def _by_role(self, claims: Mapping[str, Any]) -> frozenset[Scope]:
        held = {role for claim in self.role_claims for role in _names(_found(claims, claim))}
        return frozenset(scope for role, scopes in (self.roles or {}).items() if role in held for scope in scopes)


def _found(claims: Mapping[str, Any], name: str) -> object:
    """A claim by its name, or by the names that lead to it: `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: object = claims
    for part in name.split("."):
        value = cast("Mapping[str, object]", value).get(part) if isinstance(value, Mapping) else None
    return value


def _names(value: object) -> Iterable[str]:
    if isinstance(value, str):
        return value.split()[:MOST_NAMES]
    if isinstance(value, list):
        return [name for name in cast("list[object]", value)[:MOST_NAMES] if isinstance(name, str)]
    return ()
