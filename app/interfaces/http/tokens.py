"""Who may call: the password of `admin` and the tokens given for it."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta

import jwt

from app.kernel.clock import utc_now
from app.kernel.home import stored_secret
from app.kernel.settings import Settings

ALGORITHM = "HS256"
AUDIENCE = "tidegate"


class NotAuthenticated(Exception):
    """The token is missing, malformed, forged or expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Checks the password and makes and checks tokens (JSON Web Tokens, RFC 7519)."""

    key: bytes
    password: bytes
    lifetime: timedelta

    @classmethod
    def load(cls, settings: Settings) -> Tokens:
        """By settings, else generated once and kept 0600 under the home."""
        if settings.token_secret is not None:
            secret = settings.token_secret.get_secret_value()
        else:
            secret, _ = stored_secret(settings.home / "token.secret")
        if settings.admin_password is not None:
            password = settings.admin_password.get_secret_value()
        else:
            password, _ = stored_secret(settings.home / "admin.password")
        return cls.of(secret, password, lifetime=settings.token_lifetime)

    @classmethod
    def of(cls, secret: str, password: str, *, lifetime: float) -> Tokens:
        """Tokens signed with a secret of any length (RFC 7518 asks for a key of at least the digest's size)."""
        key = hashlib.sha256(secret.encode()).digest()
        return cls(key=key, password=password.encode(), lifetime=timedelta(seconds=lifetime))

    def issue(self, username: str, password: str) -> str:
        """A token for the right password; raises :class:`NotAuthenticated`, whichever part was wrong."""
        right_user = secrets.compare_digest(username.encode("utf-8", "surrogatepass"), b"admin")
        right_password = secrets.compare_digest(password.encode("utf-8", "surrogatepass"), self.password)
        if not (right_user and right_password):
            raise NotAuthenticated("wrong user name or password")
        now = utc_now()
        claims = {"sub": username, "aud": AUDIENCE, "iat": now, "exp": now + self.lifetime}
        return jwt.encode(claims, self.key, algorithm=ALGORITHM)

    def user_of(self, token: str) -> str:
        """The user a token was given to; raises :class:`NotAuthenticated`."""
        try:
            claims = jwt.decode(
                token, self.key, algorithms=[ALGORITHM], audience=AUDIENCE, options={"require": ["exp", "sub"]}
            )
        except (jwt.InvalidTokenError, ValueError) as error:
            raise NotAuthenticated("the token is not valid (any more)") from error
        return str(claims["sub"])
