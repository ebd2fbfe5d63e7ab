"""Runs llmock on a free port of the loopback interface.

Prints its URL; ends with its standard input.
"""

import os
import sys

# Between chunks, so that it notices a client that goes away from a broken stream.
os.environ["LLMOCK_STREAM_CHUNK_DELAY_MS"] = "5"

from llmock.testing import LLMockServer  # noqa: E402

with LLMockServer() as server:
    print(server.url, flush=True)
    sys.stdin.read()
