"""The scenarios: each disturbs the manager, and reads the kernel's own files."""

from guest import CPUS, Failed
from world import CPU, LOWEST, MASTER, REPLICA, SECOND, TOP, by_hardware, expect, scenario


@scenario
def a_check_names_the_clocks_and_changes_nothing(world):
    """`check` and `plan` know the driver, and which cores share a clock."""
    text = world.guest.run("slackwater-power check")
    expect("cores 0-3 can be slowed" in text and "driver acpi-cpufreq" in text, text)
    for one, other in ((0, 1), (2, 3)):
        line = next(line for line in text.splitlines() if f"cpu{one}:" in line)
        expect(line.endswith(f"shares its clock with {other}"), text)
    text = world.guest.run(f"slackwater-power plan redis://127.0.0.1:{MASTER} --config /etc/power.toml")
    expect("dry run: nothing is changed" in text and f":{REPLICA}" in text, text)
    expect(world.is_as_found() and not world.has_journal(), f"{world.caps()}")


@scenario
def the_replica_s_clock_is_slowed_and_not_the_master_s(world):
    """The cap holds for both cores of the replica's clock, and reaches the hardware."""
    world.start("", "--lag 500ms")
    cpu = world.slowed()
    pair, other = (0, 2) if cpu < 2 else (2, 0)
    caps = world.caps()
    expect(caps[pair] == caps[pair + 1] < TOP, f"cpu{cpu} is slow, {caps}")
    expect(caps[other] == caps[other + 1] == TOP, f"cpu{cpu} is slow, {caps}")
    # What the kernel asks the hardware for when it is to run as fast as it may.
    for policy in (0, 2):
        world.write(f"{CPU}/cpufreq/policy{policy}/scaling_governor", "performance")
    expect(world.asked_khz(other) == TOP, f"the master's clock: {world.asked_khz(other)}")
    world.guest.eventually("the hardware has the cap", lambda: world.asked_khz(pair) == world.cap(cpu) < TOP)
    master, allowed = world.server(MASTER), world.guest.run(f"taskset -p {world.pid(MASTER)}").split()[-1]
    expect(not int(allowed, 16) & (3 << pair), f"the master may run on a slow core: {allowed}, {master}")
    world.guest.eventually("it goes down to the lowest", lambda: world.cap(cpu) == LOWEST)
    expect(world.asked_khz(pair) == LOWEST, f"{world.asked_khz(pair)}")
    expect(world.stop() == 0, world.log())
    world.wait_as_found("after the end")
    expect(world.asked_khz(pair) == TOP, f"the hardware has {world.asked_khz(pair)}")


@scenario
def a_clock_shared_with_a_master_is_not_slowed(world):
    """With one core of a pair for the master and the other for the replica, neither is slowed."""
    world.start('[cores]\\nfast = "2"\\nslow = "3"\\n')
    world.both_found()
    for _ in range(40):
        caps = world.caps()
        expect(caps == [TOP] * CPUS, f"{caps}")
        world.guest.run("sleep 0.3")
    server = world.server(REPLICA)
    expect(server["cpu"] == 3 and server["set_khz"] is None, f"{server}")
    expect("cpu2" in server["reason"], f"the other core is not named: {server}")
    expect(world.stop() == 0, world.log())


@scenario
def a_lost_master_makes_the_clock_fast(world):
    """A master that stands still raises its replica's clock; once it is back that is slowed again."""
    world.start_slowed()
    pid = world.pid(MASTER)
    world.kill(pid, signal="STOP")
    try:
        world.wait_as_found("the master stands still")
    finally:
        world.kill(pid, signal="CONT")
    world.slowed()
    expect(world.stop() == 0 and world.is_as_found(), f"{world.caps()}")


@scenario
def sigterm_restores(world):
    """SIGTERM: all is as it was found, the journal is empty, and the exit code is 0."""
    world.start_slowed()
    expect(world.has_journal(), "nothing is in the journal")
    expect(world.stop() == 0, world.log())
    expect(world.is_as_found() and not world.has_journal(), f"{world.caps()}")


@scenario
def a_killed_head_is_undone_by_the_hand(world):
    """kill -9 of the head."""
    world.start_slowed()
    world.kill(world.head())
    expect(world.code() == 1, world.log())
    expect(world.is_as_found() and not world.has_journal(), f"{world.caps()}")


@scenario
def a_killed_hand_is_undone_by_the_head(world):
    """kill -9 of the hand: the head, which is another user, restores through its descriptors."""
    world.start_slowed()
    world.kill(world.hand())
    world.wait_as_found("the hand is killed")
    world.wait_gone()
    expect("hand" in world.log(), world.log())
    world.restore()
    expect(world.is_as_found() and not world.has_journal(), f"{world.caps()}")


@scenario
def both_killed_are_undone_by_restore(world):
    """kill -9 of both at once: the limit stays until `restore`, which needs to be run once."""
    cpu = world.start_slowed()
    world.kill(world.hand(), world.head())
    world.wait_gone()
    expect(world.cap(cpu) < TOP, f"somebody restored it: {world.caps()}")
    world.restore()
    expect(world.is_as_found() and not world.has_journal(), f"{world.caps()}")
    world.restore()


@scenario
def both_killed_are_undone_by_the_next_start(world):
    """kill -9 of both at once, and a manager that starts next."""
    cpu = world.start_slowed()
    world.guest.eventually("it is as slow as can be", lambda: world.cap(cpu) == LOWEST)
    world.kill(world.hand(), world.head())
    world.wait_gone()
    world.start(SECOND)
    expect("slackwater-power: restored" in world.log(), world.log())
    # What was left is not taken for a limit of somebody else: it goes down from the top, and back to it.
    cpu = world.slowed()
    expect(world.cap(cpu) < TOP, f"{world.caps()}")
    expect(world.stop() == 0 and world.is_as_found(), f"{world.caps()} {world.log()}")


@scenario
def a_lower_limit_that_was_there_is_the_top(world):
    """Somebody had limited the cores to 1.8 GHz: no core gets faster, and that is what is restored."""
    for policy in (0, 2):
        world.write(f"{CPU}/cpufreq/policy{policy}/scaling_max_freq", 1_800_000)
    cpu = world.start_slowed()
    expect(world.cap(cpu) < 1_800_000, f"{world.caps()}")
    expect(world.stop() == 0, world.log())
    expect(world.caps() == [1_800_000] * CPUS, f"{world.caps()}")


@scenario
def the_kernel_rejects_and_clamps(world):
    """EINVAL and clamping of the kernel; a lowest frequency of somebody else gives way, and comes back."""
    cap, least = (f"{CPU}/cpu3/cpufreq/scaling_{name}_freq" for name in ("max", "min"))
    said = world.guest.run(f"echo fast > {cap}", may_fail=True)
    expect("Invalid argument" in said, f"a word is taken: {said}")
    # Not at once: the kernel puts limits in force a moment later.
    for written, held in ((900_000, LOWEST), (9_900_000, TOP), (1_500_000, 1_400_000), (TOP, TOP)):
        world.write(cap, written)
        world.guest.eventually(f"{written} becomes {held}", lambda held=held: world.cap(3) == held, 10)
    world.write(least, 1_800_000)
    cpu = world.start_slowed()
    world.guest.eventually("it is slower than that", lambda: world.cap(cpu) < 1_800_000)
    expect(world.stop() == 0, world.log())
    expect(world.is_as_found() and int(world.read(least)) == 1_800_000, f"{world.caps()} {world.read(least)}")


@scenario
def governors_of_others_are_left_alone(world):
    """Governors change while a core is slow: the cap stays, and so does the governor after the end."""
    cpu = world.start_slowed()
    names = world.clock(cpu, "scaling_available_governors").split()
    for name in names:
        world.write(f"{CPU}/cpu{cpu}/cpufreq/scaling_governor", name)
        world.guest.run("sleep 1.5")
        expect(world.clock(cpu, "scaling_governor") == name, f"{name} was changed")
        expect(world.cap(cpu) < TOP, f"{name}: {world.caps()}")
    world.write(f"{CPU}/cpu{cpu}/cpufreq/scaling_governor", "powersave")
    expect(not world.has_conflict(), world.log())
    expect(world.stop() == 0, world.log())
    expect(world.is_as_found() and world.clock(cpu, "scaling_governor") == "powersave", f"{world.caps()}")


@scenario
def whoever_insists_is_left_alone(world):
    """Somebody sets another limit again and again: after three times it is theirs, also after the end."""
    cpu = world.start_slowed()
    path = f"{CPU}/cpu{cpu}/cpufreq/scaling_max_freq"

    def insisted():
        world.write(path, 1_800_000)
        return world.has_conflict()
    world.guest.eventually("a conflict", insisted)
    expect("look for tuned" in world.log(), world.log())
    expect(world.stop() == 0, world.log())
    expect(world.cap(cpu) == 1_800_000, f"{world.caps()}")


@scenario
def a_limit_of_the_firmware_leaves_no_slow_core(world):
    """The firmware limits a slow core below its cap, longer than the manager insists, and then no more."""
    cpu = world.start_slowed('floor = "1.8 GHz"\\n' + SECOND)
    world.limit(True)
    world.guest.eventually("the kernel limits it", lambda: world.cap(cpu) == LOWEST, 10)
    world.guest.eventually("it is left alone", world.has_conflict)
    world.limit(False)
    world.wait_as_found("the firmware's limit has ended")
    expect(world.stop() == 0 and world.is_as_found(), f"{world.caps()}")


@scenario
def a_core_of_the_slow_clock_goes_and_comes_back(world):
    """The clock's first core, of which its files are named, goes offline while it is slow."""
    world.start_slowed()
    world.set_online(2, False)

    def on_the_other():
        server = world.server(REPLICA)
        return server and server["cpu"] == 3 and server["set_khz"]
    world.guest.eventually("the other core is slow", on_the_other)
    world.set_online(2, True)
    world.guest.eventually("it is known again", lambda: len(world.status()["cores"]) == CPUS)
    world.slowed()
    expect(world.stop() == 0 and world.is_as_found(), f"{world.caps()}")


@scenario
def a_slow_clock_whose_cores_are_all_gone_is_restored_when_they_are_back(world):
    """Both cores go offline: the kernel keeps the limit, and its files answer EBUSY meanwhile."""
    world.start_slowed()
    for cpu in (3, 2):
        world.set_online(cpu, False)
    world.guest.eventually("they are no longer known", lambda: len(world.status()["cores"]) == 2)
    for cpu in (2, 3):
        world.set_online(cpu, True)
    world.guest.eventually("they are known again", lambda: len(world.status()["cores"]) == CPUS)
    expect(world.stop() == 0, world.log())
    world.wait_as_found("the cores are back")


@scenario
def a_manager_that_ends_without_the_cores_leaves_them_to_restore(world):
    """The manager ends while its slow cores are offline: it says so, and `restore` undoes it later."""
    world.start_slowed()
    for cpu in (3, 2):
        world.set_online(cpu, False)
    expect(world.stop() == 1, f"it ended well\n{world.log()}")
    expect("slackwater-power restore" in world.log() and world.has_journal(), world.log())
    for cpu in (2, 3):
        world.set_online(cpu, True)
    expect(world.cap(2) < TOP, "the kernel has forgotten the limit, so this tests nothing")
    world.restore()
    expect(world.is_as_found() and not world.has_journal(), f"{world.caps()}")


@scenario
def a_driver_that_is_removed_leaves_nothing(world):
    """The module goes while a core is slow, with all files of the policies, and is loaded again."""
    world.start_slowed()
    world.guest.run("rmmod acpi_cpufreq")
    world.guest.run("sleep 3")
    world.guest.run("insmod /modules/acpi-cpufreq.ko")
    world.guest.run("sleep 3")
    world.stop()
    expect(world.is_as_found(), f"{world.caps()}")
    world.restore()


@by_hardware
def all_policies_of_a_clock_are_slowed(world):
    """Where the hardware coordinates, each core has a policy; both of the replica's clock are capped."""
    names = [world.clock(3, name) for name in ("freqdomain_cpus", "related_cpus")]
    expect(names == ["2 3", "3"], f"{names}")
    world.start_slowed()
    world.guest.eventually("both are capped", lambda: max(world.caps()[2:]) < TOP)
    expect(world.caps()[:2] == [TOP, TOP], f"{world.caps()}")
    expect(world.stop() == 0 and world.is_as_found(), f"{world.caps()}")


@by_hardware
def a_policy_of_a_core_that_is_gone_is_restored_when_it_is_back(world):
    """The replica's own core goes offline, with its whole policy, and comes back."""
    cpu = world.start_slowed()
    world.set_online(cpu, False)
    world.guest.eventually("it is no longer known", lambda: len(world.status()["cores"]) == CPUS - 1)
    world.set_online(cpu, True)
    world.guest.eventually("it is known again", lambda: len(world.status()["cores"]) == CPUS)
    expect(world.stop() == 0, world.log())
    world.wait_as_found("the core is back")
