"""The tokenizer of tests/datasets/word_tokens.h, for scripts of authors that count or cut by tokens."""

import re


class WordTokens:
    words, ids = [], {}

    def encode(self, text):
        found = []
        for word in re.findall(r" ?(?:[A-Za-z0-9\u0080-\U0010ffff]+|[\s\S])", text):
            if word not in self.ids:
                self.ids[word] = len(self.words)
                self.words.append(word)
            found.append(self.ids[word])
        return found

    def decode(self, ids):
        return "".join(self.words[each] for each in ids)
