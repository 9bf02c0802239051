"""Secrets at rest: the kwargs of triggers are encrypted with Fernet (AES-128-CBC and HMAC-SHA-256)."""

from __future__ import annotations

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from app.kernel.errors import SettingsError, TidegateError
from app.kernel.home import stored_secret
from app.kernel.settings import Settings

KEY_NAME = "encryption.key"


class NotDecryptable(TidegateError):
    """A secret was encrypted with another key than TIDEGATE_ENCRYPTION_KEY now names. Add the old key behind the new
    one, separated by a comma."""


class Keys:
    """Encrypts with the first key, decrypts with any of them, so that a key can be changed without a stop."""

    def __init__(self, *keys: str) -> None:
        try:
            self._fernet = MultiFernet([Fernet(key.strip().encode()) for key in keys])
        except ValueError as error:
            raise SettingsError(problems=f"TIDEGATE_ENCRYPTION_KEY is no Fernet key: {error}") from None

    def encrypt(self, text: str) -> bytes:
        """The token of a text."""
        return self._fernet.encrypt(text.encode())

    def decrypt(self, token: bytes) -> str:
        """The text of a token; raises :class:`NotDecryptable`."""
        try:
            return self._fernet.decrypt(token).decode()
        except InvalidToken as error:
            raise NotDecryptable from error


def load_keys(settings: Settings) -> Keys:
    """The keys of this deployment: by setting (several separated by commas), else kept 0600 under the home.

    Raises :class:`app.kernel.errors.SettingsError` if a key is malformed.
    """
    if settings.encryption_key is not None:
        return Keys(*settings.encryption_key.get_secret_value().split(","))
    text, _ = stored_secret(settings.home / KEY_NAME, lambda: Fernet.generate_key().decode())
    return Keys(*text.split(","))
