"""The program whose counts are known: it touches pages, sleeps, and walks an array in order or shuffled."""

import sys
from pathlib import Path

from hpml_lab.core.system.c_code import compiled

# One program, four things to count. Pages are touched without huge pages, which would take 512 of them in one fault.
C_PROGRAM = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEEN __attribute__((noinline))               /* keeps its name for perf report */

SEEN static long walk(const int *next, long count) { /* follow the chain: each index names the one after it */
    long index = 0, sum = 0;
    for (long i = 0; i < count; i++) { sum += index; index = next[index]; }
    return sum;
}

SEEN static void shuffle(int *next, long count) {    /* Sattolo's: one cycle through all indices */
    unsigned long random = 1;
    for (long i = count - 1; i > 0; i--) {
        random = random * 6364136223846793005UL + 1442695040888963407UL;
        long j = (random >> 33) % i;
        int other = next[i]; next[i] = next[j]; next[j] = other;
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *what = argv[1];
    long count = atol(argv[2]), page = sysconf(_SC_PAGESIZE);
    if (!strcmp(what, "touch")) {
        char *memory = mmap(NULL, count * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
        if (memory == MAP_FAILED) return 1;
#ifdef MADV_NOHUGEPAGE
        madvise(memory, count * page, MADV_NOHUGEPAGE);
#endif
        for (long i = 0; i < count; i++) ((volatile char *)memory)[i * page] = 1;
    } else if (!strcmp(what, "sleep")) {
        for (long i = 0; i < count; i++) usleep(1000);
    } else {
        int *next = malloc(count * sizeof(int));
        if (!next) return 1;
        int shuffled = !strcmp(what, "shuffled");
        for (long i = 0; i < count; i++) next[i] = shuffled ? i : (i + 1) % count;
        if (shuffled) shuffle(next, count);
        printf("%ld\n", walk(next, count) + walk(next, count) + walk(next, count));
    }
    return 0;
}
"""

# The same for machines without a compiler.
PYTHON_PROGRAM = r"""
import array, mmap, random, sys, time
what, count = sys.argv[1], int(sys.argv[2])
if what == "touch":
    memory = mmap.mmap(-1, count * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANON)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    for start in range(0, len(memory), mmap.PAGESIZE):
        memory[start] = 1
elif what == "sleep":
    for _ in range(count):
        time.sleep(0.001)
else:
    order = list(range(count))
    if what == "shuffled":
        random.Random(1).shuffle(order)
    following = array.array("l", order)
    for here, there in zip(order, order[1:] + order[:1]):
        following[here] = there
    index = total = 0
    for _ in range(3 * count):
        total, index = total + index, following[index]
    print(total)
"""


def counted_program(folder: Path | str) -> tuple[list[str], str]:
    """The start of the program's command line, and its language: compiled in `folder` where there is a compiler.

    Its arguments are what it does (touch, sleep, ordered, shuffled) and how often.
    """
    target = Path(folder) / "counted"
    if compiled(C_PROGRAM, target, "-O1", "-g"):
        return [str(target)], "C"
    return [sys.executable, "-S", "-c", PYTHON_PROGRAM], "Python"
