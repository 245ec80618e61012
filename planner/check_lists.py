"The loops of the program checks, over plain lists of ints, in the part of Python that Why3 reads and proves."

# Each returns where its check first fails, or the length of the lists if it holds everywhere. Lines that start with #@
# are contracts; graphrun.core.ie_plan says what Why3 takes.
# ruff: noqa: E501
# fmt: off

#@ predicate apart(a: int, b: int, c: int, d: int) = b <= c or d <= a
#@ predicate same(a: list[int], b: list[int]) = len(a) == len(b)
#@ predicate left(ahi: list[int], blo: list[int], k: int, m: int) = ahi[k] <= blo[m]
#@ predicate sep(alo: list[int], ahi: list[int], blo: list[int], bhi: list[int], k: int, m: int) = left(ahi, blo, k, m) or left(bhi, alo, m, k)


def first_unwritten(value: list[int], write: list[int], given: list[int]) -> int:
    # Accesses in the order of execution: number of the value, and 1 for a write. given[v] is 1 for what exists before.
    #@ requires same(value, write)
    #@ requires forall k. 0 <= k < len(value) -> 0 <= value[k] < len(given)
    #@ ensures 0 <= result <= len(value)
    #@ ensures forall k. 0 <= k < result -> write[k] != 1 -> given[value[k]] == 1 or exists m. 0 <= m < k and value[m] == value[k] and write[m] == 1
    done = [0] * len(given)
    k = 0
    while k < len(value):
        #@ variant len(value) - k
        #@ invariant 0 <= k <= len(value) and len(done) == len(given)
        #@ invariant forall v. 0 <= v < len(given) -> done[v] == 1 -> exists m. 0 <= m < k and value[m] == v and write[m] == 1
        #@ invariant forall j. 0 <= j < k -> write[j] != 1 -> given[value[j]] == 1 or exists m. 0 <= m < j and value[m] == value[j] and write[m] == 1
        if write[k] == 1:
            done[value[k]] = 1
        else:
            if done[value[k]] != 1 and given[value[k]] != 1:
                return k
        k = k + 1
    return k


def first_rewritten(value: list[int], given: list[int]) -> int:
    # Writes in the order of execution: no value is written twice, or is there before.
    #@ requires forall k. 0 <= k < len(value) -> 0 <= value[k] < len(given)
    #@ ensures 0 <= result <= len(value)
    #@ ensures forall k. 0 <= k < result -> given[value[k]] != 1
    #@ ensures forall k, m. 0 <= m < k < result -> value[m] != value[k]
    done = [0] * len(given)
    k = 0
    while k < len(value):
        #@ variant len(value) - k
        #@ invariant 0 <= k <= len(value) and len(done) == len(given)
        #@ invariant forall m. 0 <= m < k -> done[value[m]] == m + 1
        #@ invariant forall m. 0 <= m < k -> given[value[m]] != 1
        if done[value[k]] > 0 or given[value[k]] == 1:
            return k
        done[value[k]] = k + 1
        k = k + 1
    return k


def first_outside(lo: list[int], hi: list[int], floor: list[int], ceiling: list[int], cap: int) -> int:
    # Accesses: bytes [lo, hi) within the buffer [floor, ceiling), which is within an arena of cap bytes.
    #@ requires same(lo, hi) and same(lo, floor) and same(lo, ceiling)
    #@ ensures 0 <= result <= len(lo)
    #@ ensures forall k, x. 0 <= k < result -> lo[k] <= x < hi[k] -> floor[k] <= x < ceiling[k] and 0 <= x < cap
    #@ ensures result < len(lo) -> lo[result] < floor[result] or ceiling[result] < hi[result] or floor[result] < 0 or cap < ceiling[result]
    k = 0
    while k < len(lo):
        #@ variant len(lo) - k
        #@ invariant 0 <= k <= len(lo)
        #@ invariant forall j. 0 <= j < k -> floor[j] <= lo[j] and hi[j] <= ceiling[j] and 0 <= floor[j] and ceiling[j] <= cap
        if lo[k] < floor[k] or ceiling[k] < hi[k] or floor[k] < 0 or cap < ceiling[k]:
            return k
        k = k + 1
    return k


def tiles_cover(lo: list[int], hi: list[int], size: int) -> bool:
    # Accepts tiles [lo, hi), in the order of their workgroups, that follow each other from 0 to size and are not empty.
    #@ requires same(lo, hi)
    #@ ensures result == True -> forall k, m. 0 <= k < m < len(lo) -> hi[k] <= lo[m]
    #@ ensures result == True -> forall k. 0 <= k < len(lo) -> 0 <= lo[k] < hi[k] <= size
    #@ ensures result == True -> forall k. 0 < k < len(lo) -> lo[k] == hi[k - 1]
    #@ ensures result == True -> len(lo) == 0 and size == 0 or 0 < len(lo) and lo[0] == 0 and hi[len(lo) - 1] == size
    end = 0
    k = 0
    while k < len(lo):
        #@ variant len(lo) - k
        #@ invariant 0 <= k <= len(lo) and 0 <= end
        #@ invariant k == 0 and end == 0 or 0 < k and end == hi[k - 1] and lo[0] == 0
        #@ invariant forall j. 0 <= j < k -> 0 <= lo[j] < hi[j] <= end
        #@ invariant forall j, m. 0 <= j < m < k -> hi[j] <= lo[m]
        #@ invariant forall j. 0 < j < k -> lo[j] == hi[j - 1]
        if lo[k] != end or hi[k] <= lo[k]:
            return False
        end = hi[k]
        k = k + 1
    return end == size


def tile_of(lo: list[int], hi: list[int], x: int) -> int:
    # Every element of a covered range is in a tile; by tiles_cover in no other.
    #@ requires same(lo, hi) and 0 < len(lo) and lo[0] == 0
    #@ requires forall k. 0 < k < len(lo) -> lo[k] == hi[k - 1]
    #@ requires 0 <= x < hi[len(lo) - 1]
    #@ ensures 0 <= result < len(lo) and lo[result] <= x < hi[result]
    k = 0
    while hi[k] <= x:
        #@ variant len(lo) - k
        #@ invariant 0 <= k < len(lo) and lo[k] <= x
        k = k + 1
    return k


def next_clash(who: list[int], write: list[int], lo: list[int], hi: list[int], i: int, start: int) -> int:
    # The first access j >= start of another call that shares bytes with access i, one of the two being a write.
    #@ requires same(who, write) and same(who, lo) and same(who, hi) and 0 <= i < len(who) and 0 <= start <= len(who)
    #@ ensures start <= result <= len(who)
    #@ ensures forall j. start <= j < result -> who[i] == who[j] or write[i] != 1 and write[j] != 1 or apart(lo[i], hi[i], lo[j], hi[j])
    #@ ensures result < len(who) -> who[i] != who[result] and (write[i] == 1 or write[result] == 1) and not apart(lo[i], hi[i], lo[result], hi[result])
    j = start
    while j < len(who):
        #@ variant len(who) - j
        #@ invariant start <= j <= len(who)
        #@ invariant forall k. start <= k < j -> who[i] == who[k] or write[i] != 1 and write[k] != 1 or apart(lo[i], hi[i], lo[k], hi[k])
        if who[i] != who[j] and (write[i] == 1 or write[j] == 1) and lo[j] < hi[i] and lo[i] < hi[j]:
            return j
        j = j + 1
    return j


def no_clash(who: list[int], write: list[int], lo: list[int], hi: list[int]) -> bool:
    # No two calls share a byte that one of them writes.
    #@ requires same(who, write) and same(who, lo) and same(who, hi)
    #@ ensures result == True -> forall i, j, x. 0 <= i < len(who) -> 0 <= j < len(who) -> who[i] != who[j] -> write[i] == 1 -> lo[i] <= x < hi[i] -> not (lo[j] <= x < hi[j])
    #@ ensures result == False -> exists i, j. 0 <= i < j < len(who) and who[i] != who[j] and (write[i] == 1 or write[j] == 1) and not apart(lo[i], hi[i], lo[j], hi[j])
    i = 0
    while i < len(who):
        #@ variant len(who) - i
        #@ invariant 0 <= i <= len(who)
        #@ invariant forall k, m. 0 <= k < i -> k < m < len(who) -> who[k] == who[m] or write[k] != 1 and write[m] != 1 or apart(lo[k], hi[k], lo[m], hi[m])
        if next_clash(who, write, lo, hi, i, i + 1) < len(who):
            return False
        i = i + 1
    return True


def rows_apart(alo: list[int], ahi: list[int], blo: list[int], bhi: list[int]) -> bool:
    # Two lists of rows [lo, hi), each in ascending order of lo, without a common byte.
    #@ requires same(alo, ahi) and same(blo, bhi)
    #@ requires forall i, j. 0 <= i <= j < len(alo) -> alo[i] <= alo[j]
    #@ requires forall i, j. 0 <= i <= j < len(blo) -> blo[i] <= blo[j]
    #@ ensures result == True -> forall i, j. 0 <= i < len(alo) -> 0 <= j < len(blo) -> sep(alo, ahi, blo, bhi, i, j)
    i = 0
    j = 0
    while i < len(alo) and j < len(blo):
        #@ variant len(alo) - i + len(blo) - j
        #@ invariant 0 <= i <= len(alo) and 0 <= j <= len(blo)
        #@ invariant forall k, m. 0 <= k < i -> 0 <= m < len(blo) -> sep(alo, ahi, blo, bhi, k, m)
        #@ invariant forall k, m. 0 <= k < len(alo) -> 0 <= m < j -> sep(alo, ahi, blo, bhi, k, m)
        if ahi[i] <= blo[j]:
            i = i + 1
        else:
            if bhi[j] <= alo[i]:
                j = j + 1
            else:
                return False
    return True


def holder(lo: list[int], hi: list[int], a: int, b: int) -> int:
    # Of writes [lo, hi) in the order of execution, the one that the bytes [a, b) come from; -1 if there is no single one.
    #@ requires same(lo, hi) and a < b
    #@ ensures -1 <= result < len(lo)
    #@ ensures 0 <= result -> lo[result] <= a and b <= hi[result]
    #@ ensures 0 <= result -> forall k. result < k < len(lo) -> apart(lo[k], hi[k], a, b)
    k = len(lo) - 1
    while 0 <= k and (hi[k] <= a or b <= lo[k]):
        #@ variant k + 1
        #@ invariant -1 <= k < len(lo)
        #@ invariant forall m. k < m < len(lo) -> apart(lo[m], hi[m], a, b)
        k = k - 1
    if 0 <= k and lo[k] <= a and b <= hi[k]:
        return k
    return -1
