import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.storage import location


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("s3://bucket/runs/", "s3://bucket/runs"),
        ("s3://bucket//a///b", "s3://bucket/a/b"),
        ("gs://bucket", "gs://bucket"),
        ("s3://_bucket/x?region=eu.west", "s3://_bucket/x?region=eu.west"),
        (
            "s3://b/x?endpoint_override=localhost:9000&scheme=http",
            "s3://b/x?endpoint_override=localhost%3A9000&scheme=http",
        ),
    ],
)
def test_uri_is_normalized(given: str, kept: str) -> None:
    assert location.absolute(given) == kept
    assert location.absolute(kept) == kept


def test_relative_path_starts_at_the_working_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert location.absolute("runs") == str(tmp_path / "runs")


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("", "empty"),
        ("s3:/bucket/x", "two slashes"),
        ("s3:/key:sEcret@bucket/x", "two slashes"),
        ("hdfs://host/x", "scheme hdfs://"),
        ("s3:///x", "no bucket"),
        ("s3://key:sEcret@bucket/x", "contains a key"),
        ("s3://key:sEcret/@bucket/x", "contains a key"),
        ("s3://bucket/x?endpoint_override=user:sEcret@host:9000", "contains a key"),
        ("s3://bucket/x?access_key=sEcret", "options: access_key"),
        ("s3://bucket/x?X-Amz-Signature=sEcret", "options: X-Amz-Signature"),
        ("s3://[bucket/x", "not a valid URI"),
        ("~nobody-of-this-name/runs", "does not exist"),
        ("s3://b c/x", "the bucket is 'b c'"),
        ("s3://bücket/x", "the bucket is 'bücket'"),
        ("s3://./x", "the bucket is '.'"),
        ("s3://bucket/../x", "the prefix is '../x'"),
        ("s3://bucket/x/%2e", "the prefix is 'x/.'"),
        ("s3://bucket/x%0A", r"the prefix is 'x\\n'"),
        ("s3://bucket?scheme=ftp", "scheme is 'ftp'"),
        ("s3://bucket?endpoint_override=localhost:65536", "endpoint_override is 'localhost:65536'"),
        ("s3://bucket?region=us east", "region is 'us east'"),
        ("s3://bucket?endpoint_override=local host", "endpoint_override is 'local host'"),
        ("s3://bucket?endpoint_override=[::1", "endpoint_override is "),
        ("s3://bucket?endpoint_override=ftp://host", "endpoint_override is 'ftp://host'"),
    ],
)
def test_invalid_location_is_rejected_without_repeating_keys(wrong: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as raised:
        location.absolute(wrong)
    assert "sEcret" not in str(raised.value)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://key:sEcret/@bucket/x.csv",
        "https://host/x.csv?sv=2024&sig=sEcret",
        "hdfs://user:sEcret@host/x.csv",
        "simplecache::ftp://user:sEcret@host/x.csv",
        "zip://x.csv::simplecache::ftp://user:sEcret@host/x.zip",
        "s3://b/x.csv?endpoint_override=user:sEcret@host",
    ],
)
def test_a_source_that_holds_a_key_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="contains a key") as raised:
        location.reject_keys(uri)
    assert "sEcret" not in str(raised.value)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://b/a@b.csv",
        "hdfs://host:9000/x:y.csv",
        "https://host:80/x.csv?v=1",
        "https://[::1]:80/x.csv?design=2",
        "simplecache::s3://b/a@b::c.csv",
    ],
)
def test_source_without_a_key_is_accepted(uri: str) -> None:
    assert location.reject_keys(uri) == uri


@pytest.mark.parametrize(
    "endpoint",
    [
        "host",
        "host:9000",
        "http://host:9000",
        "https://x.example.com/storage/v1/s3",
        "[::1]:9000",
        "http://127.0.0.1:65535/",
    ],
)
def test_valid_addresses_are_accepted(endpoint: str) -> None:
    assert location.is_address(endpoint)


names = st.text(
    st.characters(exclude_characters="/", exclude_categories=("Cs", "Cc")), min_size=1
).filter(lambda name: name not in (".", ".."))


@given(st.lists(names, min_size=1, max_size=4), st.sampled_from(["", "?region=eu-west-1"]))
def test_split_inverts_join(parts: list[str], options: str) -> None:
    base = location.absolute(f"s3://bucket{options}")
    joined = location.join(base, *parts)
    assert location.split(joined)[2] == "/".join(parts)
    assert location.base_name(joined) == parts[-1]
    assert location.absolute(joined) == joined
    assert location.parent(location.join(base, *parts)) == location.join(base, *parts[:-1])
