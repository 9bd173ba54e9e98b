"""Measures exllamav2 on a model folder and prints JSON; bench/compare_exllamav2 runs it.

The tests are those of `bitloom bench`: greedy decoding of 128 tokens behind 128 or 3800 tokens, and
prefill of 2048. A figure is the mean of three runs after one that does not count.
"""

import json
import sys
import time

import torch
from exllamav2 import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config

MOST_IDS = 1000  # any ids will do; every vocabulary has these


def timed(function, repetitions=3):
    function()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repetitions):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repetitions


def decode(model, cache, batch, depth, count):
    ids = torch.full((batch, 1), 5)
    cache.current_seq_len = depth
    for _ in range(count):
        logits = model.forward(ids, cache)
        ids = torch.argmax(logits[:, -1], dim=-1).cpu().unsqueeze(1).clamp_(0, MOST_IDS - 1)


def prefill(model, cache, ids):
    cache.current_seq_len = 0
    model.forward(ids, cache, preprocess_only=True)


def main():
    config = ExLlamaV2Config(sys.argv[1])
    config.max_seq_len = 4096
    config.max_batch_size = 16
    config.max_input_len = 2048
    config.max_attention_size = 2048 ** 2
    model = ExLlamaV2(config)
    start = time.perf_counter()
    model.load()
    torch.cuda.synchronize()
    result = {"load_seconds": time.perf_counter() - start}
    with torch.inference_mode():
        for batch in (1, 16):
            cache = ExLlamaV2Cache(model, batch_size=batch, max_seq_len=512)
            result[f"decode x{batch}"] = 128 * batch / timed(lambda: decode(model, cache, batch, 128, 128))
            del cache
        cache = ExLlamaV2Cache(model, batch_size=1, max_seq_len=config.max_seq_len)
        ids = torch.randint(5, MOST_IDS, (1, 2048))
        result["prefill 2048"] = 2048 / timed(lambda: prefill(model, cache, ids))
        result["decode at 3800"] = 128 / timed(lambda: decode(model, cache, 1, 3800, 128))
    print(json.dumps(result))


main()
