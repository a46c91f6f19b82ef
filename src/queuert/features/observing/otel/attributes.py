"""The names of all attributes. OpenTelemetry's semantic conventions define some of them."""

from __future__ import annotations

MESSAGING_SYSTEM = "messaging.system"
MESSAGING_DESTINATION = "messaging.destination.name"
MESSAGING_OPERATION = "messaging.operation.type"
MESSAGING_MESSAGE_ID = "messaging.message.id"
MESSAGING_CONVERSATION_ID = "messaging.message.conversation_id"
ERROR_TYPE = "error.type"

CHAIN_TYPE = "queuert.chain.type"
CHAIN_STATUS = "queuert.chain.status"
CHAIN_DEDUPLICATED = "queuert.chain.deduplicated"
JOB_TYPE = "queuert.job.type"
JOB_STATUS = "queuert.job.status"
JOB_INDEX = "queuert.job.index"
JOB_CONTINUED = "queuert.job.continued"
ATTEMPT = "queuert.attempt.number"
ATTEMPT_OUTCOME = "queuert.attempt.outcome"
WORKER = "queuert.worker.id"
OPERATION = "queuert.operation"
LIMIT = "queuert.limit"
QUANTILE = "queuert.quantile"

SYSTEM = "queuert"
