"""Apache Kafka with a listener that asks for TLS and a password."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.services.kafka import ApacheKafka, free_port

USER = "alice"
PASSWORD = "hunter2"


class SecureApacheKafka(ApacheKafka):
    """The user ``alice`` may log in by PLAIN and SCRAM-SHA-256 at :attr:`secure_address`; ``authority`` is the
    certificate that vouches for the broker."""

    def __init__(self, folder: Path, *, jars: Path) -> None:
        super().__init__(folder, jars=jars)
        self.secure_port = free_port()
        self.authority = folder / "authority.pem"

    @property
    def secure_address(self) -> str:
        return f"127.0.0.1:{self.secure_port}"

    def format_options(self) -> list[str]:
        return ["--add-scram", f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"]

    def listeners(self) -> dict[str, tuple[int, str]]:
        return {**super().listeners(), "SECURE": (self.secure_port, "SASL_SSL")}

    def more_properties(self) -> dict[str, object]:
        key, certificate = _certificate()
        self.authority.write_text(certificate)
        name = "listener.name.secure"
        login = f'required username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
        return {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            f"{name}.plain.sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule {login}",
            f"{name}.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            f"{name}.ssl.keystore.type": "PEM",
            f"{name}.ssl.keystore.key": key.replace("\n", "\\n"),
            f"{name}.ssl.keystore.certificate.chain": certificate.replace("\n", "\\n"),
        }


def _certificate() -> tuple[str, str]:
    """A key and a certificate of its own for 127.0.0.1, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kafka of the tests")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private.decode(), certificate.public_bytes(serialization.Encoding.PEM).decode()
