"""The `openai` client against `kvarena serve`; skipped where that package is not installed.

    python3 tests/end_to_end/serve_openai_test.py build/release/bin/kvarena SOURCE_FOLDER
"""

import pathlib
import sys
import tempfile
import unittest

import served

try:
    import openai
except ImportError as error:
    print(f"skipped: {error}; pip install openai")
    sys.exit(77)

KVARENA, SOURCE = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
METHOD = "streaming_llm:tokens=32"


class OpenAiClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = served.Server(KVARENA, SOURCE, cls.folder.name, [METHOD])
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, code

    def test_models(self):
        self.assertEqual(["tiny", f"tiny@{METHOD}"], [model.id for model in self.client.models.list()])

    def test_a_stream_is_the_whole_answer(self):
        for model in ("tiny", f"tiny@{METHOD}"):
            asked = {"model": model, "prompt": list(range(2, 120)), "max_tokens": 24}
            whole = self.client.completions.create(**asked)
            self.assertEqual((118, 24), (whole.usage.prompt_tokens, whole.usage.completion_tokens))
            chunks = list(self.client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
            self.assertEqual(whole.choices[0].text, "".join(one.choices[0].text for one in chunks if one.choices))
            self.assertEqual(whole.usage, chunks[-1].usage)

    def test_prompts_are_scored_as_lm_eval_asks(self):
        asked = {"prompt": [list(range(2, 42))], "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True, "seed": 1234}
        full, method = (self.client.completions.create(model=model, **asked).choices[0].logprobs
                        for model in ("tiny", f"tiny@{METHOD}"))
        self.assertEqual(41, len(full.tokens))
        self.assertIsNone(full.token_logprobs[0])
        self.assertTrue(all(value < 0 for value in full.token_logprobs[1:]))
        self.assertTrue(all(len(top) == 1 for top in full.top_logprobs[1:]))
        self.assertEqual(full.token_logprobs[1:20], method.token_logprobs[1:20])
        self.assertNotEqual(full.token_logprobs[33:], method.token_logprobs[33:])

    def test_errors_are_the_clients(self):
        with self.assertRaises(openai.NotFoundError):
            self.client.completions.create(model="nobody", prompt="x")
        with self.assertRaises(openai.BadRequestError) as refused:
            self.client.completions.create(model="tiny", prompt="x", n=2)
        self.assertEqual("n", refused.exception.param)
        with self.assertRaises(openai.BadRequestError):
            self.client.chat.completions.create(model="tiny", messages=[])

    def test_a_chat_streams_its_answer(self):
        asked = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_completion_tokens": 9}
        whole = self.client.chat.completions.create(**asked, logprobs=True, top_logprobs=2).choices[0]
        self.assertEqual(9, len(whole.logprobs.content))
        chunks = list(self.client.chat.completions.create(**asked, stream=True))
        self.assertEqual("assistant", chunks[0].choices[0].delta.role)
        self.assertEqual(whole.message.content, "".join(one.choices[0].delta.content or "" for one in chunks))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
