"""What crosses into a store and back: JSON, payloads by their types, and failures."""

from outlive.serialization.failures import (
    Failed,
    describe,
    kind_of,
    masked,
    name_of,
    printable,
    trace_of,
)
from outlive.serialization.json import (
    DEPTH_MAX,
    METADATA_BYTES_MAX,
    decode_json,
    decode_metadata,
    encode_json,
    encode_metadata,
)
from outlive.serialization.payloads import (
    PAYLOAD_BYTES_MAX,
    Codec,
    Values,
    codec_of,
    decode_plain,
    encode,
    values_of,
)

__all__ = [
    "DEPTH_MAX",
    "METADATA_BYTES_MAX",
    "PAYLOAD_BYTES_MAX",
    "Codec",
    "Failed",
    "Values",
    "codec_of",
    "decode_json",
    "decode_metadata",
    "decode_plain",
    "describe",
    "encode",
    "encode_json",
    "encode_metadata",
    "kind_of",
    "masked",
    "name_of",
    "printable",
    "trace_of",
    "values_of",
]
