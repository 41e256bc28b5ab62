"""Keys and certificates of a deployment: an authority of its own, a server's certificate, a key per node."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedkeel.common.errors import ConfigError
from fedkeel.common.files import storage_errors

_DAYS = 365


def make_certificates(folder: Path, hosts: list[str]) -> None:
    """Write ca.crt, ca.key, server.pem and server.key for names and addresses, unless they are there."""
    if (folder / "server.pem").exists():
        check_certificates(folder)
        return
    x509, hashes, serialization, ec = _cryptography()
    now = datetime.now(UTC)

    def certificate(name: str, key: Any, issuer: Any, signer: Any, extensions: list[Any]) -> Any:
        subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if issuer is None else issuer.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=_DAYS))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(signer, hashes.SHA384())

    authority_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    signing = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    own = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = certificate(
        "fedkeel deployment",
        authority_key,
        None,
        authority_key,
        [(x509.BasicConstraints(ca=True, path_length=0), True), (signing, True), (own, False)],
    )
    names = x509.SubjectAlternativeName([_named(x509, host) for host in hosts])
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    usage = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
    server = certificate(
        hosts[0],
        server_key,
        authority,
        authority_key,
        [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (names, False),
            (issued_by, False),
            (usage, False),
        ],
    )
    pem = serialization.Encoding.PEM
    private = (pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with storage_errors(folder):
        write_private(folder / "ca.key", authority_key.private_bytes(*private))
        write_private(folder / "server.key", server_key.private_bytes(*private))
        (folder / "ca.crt").write_bytes(authority.public_bytes(pem))
        (folder / "server.pem").write_bytes(server.public_bytes(pem))


def check_certificates(folder: Path) -> None:
    """Refuse a server's certificate that nodes would refuse: damaged, of another authority, expired."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415  an extra

    x509, *_ = _cryptography()
    path, why = folder / "server.pem", ""
    try:
        authority, server = (
            x509.load_pem_x509_certificate(file.read_bytes()) for file in (folder / "ca.crt", path)
        )
        server.verify_directly_issued_by(authority)
        if server.not_valid_after_utc < datetime.now(UTC):
            why = f"expired on {server.not_valid_after_utc:%Y-%m-%d}"
    except (ValueError, TypeError, InvalidSignature):
        why = "is not signed by the authority in ca.crt beside it"
    except OSError as problem:
        why = f"cannot be checked ({problem.filename}: {problem.strerror})"
    if why:
        raise ConfigError(f"{path}: {why}: remove {folder}, and `fedkeel deploy up` makes new keys")


def make_node_key(folder: Path, name: str) -> Path:
    """Write a node's private key and NAME.pub, unless they are there; return the private key's path."""
    path = folder / name
    if not path.exists():
        _, _, serialization, ec = _cryptography()
        key = ec.generate_private_key(ec.SECP384R1())
        form = (
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        with storage_errors(folder):
            (folder / f"{name}.pub").write_bytes(public)
            write_private(path, key.private_bytes(*form))
    return path


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(content)


def _named(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _cryptography() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography import x509  # noqa: PLC0415  an extra
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError:
        raise ConfigError('a deployment needs Flower: pip install "fedkeel[flower]"') from None
    return x509, hashes, serialization, ec
