"""Locations that users specify: a folder on a file system, ``s3://BUCKET/PREFIX`` or ``gs://BUCKET/PREFIX``.

A URI may have only the query parameters ``endpoint_override``, ``scheme`` and ``region``, which have the same meaning
as in pyarrow. It must not contain credentials.
"""

import re
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

OPTIONS = ("endpoint_override", "scheme", "region")

SCHEMES = ("s3", "gs")
_BUCKET = re.compile(r"\w[\w.-]*", re.ASCII)
_REGION = re.compile(r"[\w.:-]+", re.ASCII)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_ADDRESS = re.compile(
    r"(https?://)?([\w.-]+|\[[\da-f:.]+\])(:(?P<port>\d{1,5}))?(/[\w.~%/+:@-]*)?",
    re.ASCII | re.IGNORECASE,
)
_LAST_PORT = 65535
_NAMES_OF_KEYS = ("key", "secret", "token", "signature", "credential", "password")


def is_uri(location: str) -> bool:
    """Return whether the location is in an object store."""
    return "://" in location


def absolute(location: str) -> str:
    """Return the location in normalized form: an absolute path, or a URI without a trailing slash.

    Raises:
        ValueError: If the location is invalid.
    """
    if not location:
        raise ValueError("is empty; allowed: a folder or a URI")
    reject_null(location)
    if not is_uri(location):
        if location.partition(":/")[0] in SCHEMES:
            # The value is not repeated, because it may contain a key.
            raise ValueError(
                "is a URI with one slash after the scheme; expected two slashes, as in s3://BUCKET/PREFIX"
            )
        try:
            return str(Path(location).expanduser().absolute())
        except RuntimeError:
            raise ValueError(f"is {location!r}, but this user does not exist") from None
    try:
        parts = urlsplit(location)
    except ValueError:  # the bucket contains a bracket
        raise ValueError(
            "is not a valid URI; allowed: s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"
        ) from None
    if parts.scheme not in SCHEMES:
        allowed = " or ".join(f"{scheme}://BUCKET/PREFIX" for scheme in SCHEMES)
        raise ValueError(f"has the scheme {parts.scheme}://; allowed: a folder, {allowed}")
    if not parts.netloc:
        raise ValueError(f"has no bucket; expected {parts.scheme}://BUCKET/PREFIX")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise ValueError(
            f"the URI has unknown options: {', '.join(unknown)}; allowed: {', '.join(OPTIONS)}. "
            "Credentials are read from the environment"
        )
    reject_keys(location)
    if parts.fragment:
        raise ValueError("the URI contains #; write it as %23")
    _check_names(parts.netloc, unquote(parts.path))
    _check_options(options)
    return _compose(parts.scheme, parts.netloc, unquote(parts.path), options)


def _check_names(bucket: str, prefix: str) -> None:
    """Raise ValueError for names that crash the store's client."""
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(
            f"the bucket is {bucket!r}; allowed characters: letters, digits, dots, dashes and underscores"
        )
    if {".", ".."} & set(prefix.split("/")):
        raise ValueError(f"the prefix is {prefix.strip('/')!r}; no part may be . or ..")
    if _CONTROL_CHARACTER.search(prefix):
        raise ValueError(f"the prefix is {prefix.strip('/')!r}; control characters are not allowed")


def _check_options(options: dict[str, str]) -> None:
    scheme = options.get("scheme", "https")
    if scheme not in ("http", "https"):
        raise ValueError(f"scheme is {scheme!r}; allowed: http, https")
    endpoint = options.get("endpoint_override")  # an empty value is treated as missing
    if endpoint and not is_address(endpoint):
        raise ValueError(
            f"endpoint_override is {endpoint!r}; allowed: HOST:PORT, http://HOST:PORT, https://HOST:PORT"
        )
    region = options.get("region")
    if region and not is_region(region):
        raise ValueError(f"region is {region!r}; allowed: a name such as eu-west-1")


def is_address(endpoint: str) -> bool:
    """Return whether ``endpoint`` is a host, optionally with ``http(s)://``, a port and a path."""
    match = _ADDRESS.fullmatch(endpoint)
    return match is not None and int(match["port"] or 0) <= _LAST_PORT


def is_region(name: str) -> bool:
    """Return whether ``name`` looks like a region name. Other names crash the store's client."""
    return _REGION.fullmatch(name) is not None


def is_folder(path: Path) -> bool:
    """Return whether the folder exists, or False if its name is too long for the file system."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Return whether the file exists, or False if its name is too long for the file system."""
    try:
        return path.is_file()
    except OSError:
        return False


def expand_home(name: str | Path) -> Path:
    """Return the path with ``~`` expanded, or the unchanged path if the user does not exist."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def reject_null(name: str) -> str:
    """Return a file or folder name unchanged.

    Raises:
        ValueError: If the name contains a null byte.
    """
    if "\0" in name:
        raise ValueError(f"{name!r} contains a null byte")
    return name


def reject_keys(uri: str) -> str:
    """Return the URI unchanged.

    Raises:
        ValueError: If the URI appears to contain credentials. The message does not include the URI.
    """
    # fsspec supports chained URIs, such as simplecache::https://host/file
    for part in re.split(r"::(?=[\w.+-]+://)", uri):
        parts = urlsplit(part)
        options = parse_qsl(parts.query, keep_blank_values=True)
        names = {name.lower() for name, _ in options}
        is_named = "sig" in names or any(word in name for name in names for word in _NAMES_OF_KEYS)
        in_values = any("@" in value for _, value in options)
        if is_named or in_values or "@" in parts.netloc or _has_odd_port(parts):
            raise ValueError(
                "the URI contains a key; store credentials are read from the environment"
            )
    return uri


def _has_odd_port(parts: SplitResult) -> bool:
    """Return whether the host contains a colon that is not followed by a port.

    This detects keys that contain a slash: the host of s3://ID:SEC/RET@bucket is parsed as ID:SEC.
    """
    if parts.scheme in SCHEMES:
        return ":" in parts.netloc
    try:
        _ = parts.port
    except ValueError:
        return True
    return False


def join(location: str, *names: str) -> str:
    """Return the location with the names appended."""
    if not is_uri(location):
        return str(Path(location, *names))
    scheme, bucket, prefix, options = split(location)
    return _compose(scheme, bucket, "/".join([prefix, *names]), options)


def parent(location: str) -> str:
    """Return the location that contains this location."""
    if not is_uri(location):
        return str(Path(location).parent)
    scheme, bucket, prefix, options = split(location)
    return _compose(scheme, bucket, prefix.rpartition("/")[0], options)


def base_name(location: str) -> str:
    """Return the last component of a location."""
    if not is_uri(location):
        return Path(location).name
    return split(location)[2].rpartition("/")[2]


def split(uri: str) -> tuple[str, str, str, dict[str, str]]:
    """Return a URI's scheme, bucket, prefix (without leading or trailing slashes) and options."""
    parts = urlsplit(uri)
    return parts.scheme, parts.netloc, unquote(parts.path).strip("/"), dict(parse_qsl(parts.query))


def _compose(scheme: str, bucket: str, path: str, options: dict[str, str]) -> str:
    names = [quote(name, safe=" !$&'()*+,;=:@") for name in path.split("/") if name]
    uri = "/".join([f"{scheme}://{bucket}", *names])
    return f"{uri}?{urlencode(options)}" if options else uri
