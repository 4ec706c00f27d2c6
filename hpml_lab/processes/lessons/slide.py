"""The lecture's example as on the slides: two functions, both called f. `python -m hpml_lab.processes.lessons.slide`."""

from multiprocessing import Pool, Process


def f(name):
    print("hello", name)


def f(x):  # noqa: F811 - the mistake that this module is about: the second f replaces the first
    return x * x


if __name__ == "__main__":
    p = Process(target=f, args=("bob",))
    p.start()
    p.join()
    print("exit code of the process:", p.exitcode)  # not on the slide

    with Pool(5) as p:
        print(p.map(f, [1, 2, 3]))
