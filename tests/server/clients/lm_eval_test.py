"""lm-eval's `local-completions` on small tasks of our own; nothing is downloaded."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from client_test_case import HERE, KEY, ClientTestCase

TASKS = ("bitloom_choices", "bitloom_rolling", "bitloom_generate")


def logprob_of(server, context, continuation):
    """The log-probability of a continuation, asked for directly: an answer to compare with that does not pass through lm-eval."""
    def encode(text):
        return server.post("/token/encode", {"text": text, "add_bos_token": False})["tokens"]
    ids = encode(context + continuation)
    answer = server.post("/v1/completions", {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 1})
    return sum(answer["choices"][0]["logprobs"]["token_logprobs"][len(encode(context)):])


class LmEval(ClientTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = tempfile.TemporaryDirectory(prefix="bitloom-lm-eval-")
        folder = pathlib.Path(cls.output.name)
        (folder / "tasks").mkdir()
        for file in (HERE / "lm_eval_tasks").glob("*.yaml"):
            (folder / "tasks" / file.name).write_text(file.read_text().replace("DATA", str(HERE / "lm_eval_tasks")))
        environment = {**os.environ, "OPENAI_API_KEY": KEY, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
                       "TRANSFORMERS_OFFLINE": "1", "HF_HOME": str(folder / "hf"), "TOKENIZERS_PARALLELISM": "false"}
        arguments = ",".join([f"model={cls.model}", f"base_url={cls.server.address}/v1/completions", "num_concurrent=4",
                              "max_retries=1", "tokenized_requests=True", "max_length=2048",
                              f"tokenizer={cls.model_folder}", "tokenizer_backend=huggingface"])
        cls.outcome = subprocess.run(
            [sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", arguments, "--tasks", ",".join(TASKS),
             "--include_path", str(folder / "tasks"), "--output_path", str(folder / "out"), "--log_samples"],
            env=environment, capture_output=True, text=True, timeout=900)

    @classmethod
    def tearDownClass(cls):
        cls.output.cleanup()
        super().tearDownClass()

    def results(self):
        self.assertEqual(self.outcome.returncode, 0, self.outcome.stderr[-4000:])
        files = list(pathlib.Path(self.output.name).glob("out/**/results*.json"))
        self.assertEqual(len(files), 1, self.outcome.stdout[-2000:])
        return json.loads(files[0].read_text())["results"]

    def samples(self, task):
        self.results()
        file = next(iter(pathlib.Path(self.output.name).glob(f"out/**/samples_{task}_*.jsonl")))
        return [json.loads(line) for line in file.read_text().splitlines()]

    def test_every_task_has_its_result(self):
        results = self.results()
        self.assertEqual(sorted(results), sorted(TASKS))
        self.assertGreater(results["bitloom_rolling"]["byte_perplexity,none"], 1)
        if not self.has_demo_model():
            return
        self.assertEqual(results["bitloom_choices"]["acc,none"], 1.0)
        self.assertLess(results["bitloom_rolling"]["byte_perplexity,none"], 4)
        self.assertGreaterEqual(results["bitloom_generate"]["exact_match,first_word"], 2 / 3)

    def test_likelihoods_are_the_servers_own(self):
        for sample in self.samples("bitloom_choices"):
            for choice, response in zip(sample["doc"]["choices"], sample["filtered_resps"]):
                expected = logprob_of(self.server, sample["doc"]["question"], " " + choice)
                self.assertAlmostEqual(float(response[0]), expected, places=2)
