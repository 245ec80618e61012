"""Drafts from the text itself: what followed the last tokens where they stood before."""

from __future__ import annotations

from collections.abc import Sequence

from graphrun.draft import DFlashDrafter, MtpDrafter, Read

SHORTEST, LONGEST = 2, 16  # tokens that must agree, and that are compared at most
AGREE = 2  # guesses of the MTP layer that must equal those of the text


class Lookup:
    """Looks for the tokens before the present one in all that came before; the longest match counts, of equals the
    last."""

    def __init__(self) -> None:
        self.history: list[int] = []
        self.after: dict[tuple[int, int], list[int]] = {}  # two neighbouring tokens -> positions behind them

    def follow(self, start: int, tokens: Sequence[int], read: Read) -> None:
        self._forget(start)
        for token in tokens:
            self.history.append(token)
            if len(self.history) >= SHORTEST:
                self.after.setdefault((self.history[-2], token), []).append(len(self.history))

    def draft(self, token: int, count: int) -> list[int]:
        return self.find(token, count)[0]

    def find(self, token: int, count: int) -> tuple[list[int], int]:
        """`count` tokens that followed the best match, and its length; none and 0 if there is no match.

        Past the end of the text they repeat what lies between the match and the end.
        """
        text = [*self.history[-LONGEST + 1 :], token]
        best, place = 0, 0
        for end in reversed(self.after.get((text[-2], token), ()) if len(text) > 1 else ()):
            length = self._agreeing(text, end)
            if length > best:
                best, place = length, end
            if best == LONGEST:
                break
        if count < 1 or not best:
            return [], 0
        known = [*self.history[place : place + count], token]
        return [known[i % len(known)] for i in range(count)], best

    def _agreeing(self, text: Sequence[int], end: int) -> int:
        """How many of the last tokens of `text` stand before position `end`."""
        length = SHORTEST
        while length < min(len(text), end) and text[-length - 1] == self.history[end - length - 1]:
            length += 1
        return length

    def _forget(self, start: int) -> None:
        """A session has gone back to position `start`."""
        for end in range(len(self.history), max(start, SHORTEST - 1), -1):
            self.after[self.history[end - 2], self.history[end - 1]].pop()
        del self.history[start:]


class MtpWithLookup:
    """The MTP layer's guesses, at most `most`, and those of the text where the layer agrees with it.

    After a long match the first guesses decide; else all of them must be the text's.
    """

    def __init__(self, mtp: MtpDrafter, most: int) -> None:
        self.mtp, self.most, self.lookup = mtp, most, Lookup()

    def follow(self, start: int, tokens: Sequence[int], read: Read) -> None:
        self.mtp.follow(start, tokens, read)
        self.lookup.follow(start, tokens, read)

    def draft(self, token: int, count: int) -> list[int]:
        known, length = self.lookup.find(token, count)
        found: list[int] = []
        for guess in self.mtp.guesses(token, min(count, self.most)):
            found.append(guess)
            if length == LONGEST and len(found) == AGREE and found == known[:AGREE]:
                return known
        return known if len(found) >= AGREE and found == known[: len(found)] else found


class DFlashWithLookup:
    """A block of guesses, or after a long match what followed it."""

    def __init__(self, dflash: DFlashDrafter) -> None:
        self.dflash, self.lookup = dflash, Lookup()

    def follow(self, start: int, tokens: Sequence[int], read: Read) -> None:
        self.dflash.follow(start, tokens, read)
        self.lookup.follow(start, tokens, read)

    def draft(self, token: int, count: int) -> list[int]:
        known, length = self.lookup.find(token, count)
        return known if length == LONGEST else self.dflash.draft(token, count)
