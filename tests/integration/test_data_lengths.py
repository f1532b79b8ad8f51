"""Tokenizers that use all cores, in a process that forks."""

import os

from elastic_core.miniature.warm_start import BASE
from tests.processes import python

FORK = """
import os, signal, sys
from transformers import AutoTokenizer
from elastic_core.data.problems import prompt_lengths
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
prompt_lengths(tokenizer, ["1+1=?"] * 100)
child = os.fork()
if not child:
    signal.alarm(10)
    prompt_lengths(tokenizer, ["1+1=?"] * 100)
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1] != 0)
"""


def test_a_forked_child_does_not_wait_for_the_threads_of_its_parent() -> None:
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
    python(FORK, BASE, environment=environment)
