"""Job types as classes: their declarations, their values as JSON, and the registry of a client."""

from queuert.jobs.chain import Chain
from queuert.jobs.codecs.codec import Codec, PydanticCodec
from queuert.jobs.job import EntryJob, Job, options_of
from queuert.jobs.job_type import BlockerField, JobType
from queuert.jobs.options import NO_OPTIONS, JobOptions, make_options
from queuert.jobs.record import JobRecord
from queuert.jobs.registry import JobsItem, JobTypes, Registry

__all__ = [
    "NO_OPTIONS",
    "BlockerField",
    "Chain",
    "Codec",
    "EntryJob",
    "Job",
    "JobOptions",
    "JobRecord",
    "JobType",
    "JobTypes",
    "JobsItem",
    "PydanticCodec",
    "Registry",
    "make_options",
    "options_of",
]
