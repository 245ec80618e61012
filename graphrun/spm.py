"""SentencePiece (SPM) encoding of plain text: the pair with the best score merges first, the rest become bytes."""

from __future__ import annotations

import heapq

from graphrun.vocabulary import BYTE, CONTROL, UNKNOWN, Vocabulary

SPACE = "▁"


class SentencePieceEncoder:
    """Text without special tokens -> ids.

    Merging is written out here because pairs have no ranks of their own: any two neighbours merge whose joined text
    is a token, best score first and leftmost on ties, also where one of them is no token itself. Extra white space is
    kept, as llama.cpp keeps it for this model.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Raises ModelError if some byte can be written neither as a token nor as the unknown token."""
        # control tokens stay out: text must never turn into one
        hidden = (CONTROL, UNKNOWN, BYTE)
        kinds = vocabulary.kinds
        self._ids = {text: token for text, token in vocabulary.ids.items() if kinds[token] not in hidden}
        self._costs = {text: -vocabulary.scores[token] for text, token in self._ids.items()}
        self._bytes = [self._byte_id(vocabulary, byte) for byte in range(256)]

    def _byte_id(self, vocabulary: Vocabulary, byte: int) -> int:
        name = f"<0x{byte:02X}>"
        token = vocabulary.ids.get(name)
        if token is None and byte < 128:
            token = self._ids.get(chr(byte))
        if token is None:
            token = vocabulary.unk_id
        if token is None:
            raise vocabulary.error("tokens", f"byte token {name!r} is missing, and there is no unknown token")
        return token

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, whose spaces become "▁"; a space in front is the caller's business."""
        text = text.replace(" ", SPACE)
        ids: list[int] = []
        start = 0
        for size in self._merge(text):
            word = text[start : start + size]
            token = self._ids.get(word)
            ids.extend([token] if token is not None else [self._bytes[byte] for byte in word.encode()])
            start += size
        return ids

    def _merge(self, text: str) -> list[int]:
        """Lengths of the pieces that no pair can merge any more; they tile `text`."""
        costs, n = self._costs, len(text)
        # piece i starts at character i; a merged-away piece has size 0
        sizes = [1] * n
        before = list(range(-1, n))
        pairs = [text[i : i + 2] for i in range(n - 1)]
        heap = [(costs[pair], i, 2) for i, pair in enumerate(pairs) if pair in costs]
        heapq.heapify(heap)
        while heap:
            _, left, size = heapq.heappop(heap)
            right = left + sizes[left]
            if sizes[left] == 0 or right >= n or sizes[left] + sizes[right] != size:
                continue
            sizes[left], sizes[right] = size, 0
            after = left + size
            before[after] = left
            for start, end in ((before[left], after), (left, after + sizes[after] if after < n else after)):
                cost = costs.get(text[start:end]) if 0 <= start and end - start > size else None
                if cost is not None:
                    heapq.heappush(heap, (cost, start, end - start))
        return [size for size in sizes if size]
