/* P-states for four processors of QEMU's "pc" machine, as a mainboard's firmware describes them.
 *
 * A P-state is set by writing its number to an I/O port. The ports here are the scratch registers of the
 * third and the fourth serial port, which keep a byte and do nothing else: what the kernel asked the hardware
 * for can be read back from there. Processors 0 and 1 share one clock, and so do 2 and 3.
 *
 * Who makes the two processors of a clock agree? By default the kernel, which then has one cpufreq policy
 * for both. With -D HARDWARE the hardware: each has a policy of its own, and the kernel names those that
 * share a clock in freqdomain_cpus.
 */
#ifdef HARDWARE
#define COORDINATION 0xFE
#else
#define COORDINATION 0xFC
#endif

DefinitionBlock ("", "SSDT", 2, "SLACKW", "CPUFREQ", 1)
{
    External (\_SB.CPUS.C000, DeviceObj)
    External (\_SB.CPUS.C001, DeviceObj)
    External (\_SB.CPUS.C002, DeviceObj)
    External (\_SB.CPUS.C003, DeviceObj)

    /* In MHz, mW and us: frequency, power, two latencies, what is written and what is then read. */
    Name (\SWPS, Package () {
        Package () { 2200, 20000, 10, 10, 0x10, 0x10 },
        Package () { 1800, 14000, 10, 10, 0x11, 0x11 },
        Package () { 1400,  9000, 10, 10, 0x12, 0x12 },
        Package () { 1000,  6000, 10, 10, 0x13, 0x13 }
    })

    /* The highest P-state that the firmware allows at present. A fan cools nothing here: to switch it is how
     * a method of the firmware can be run from user space. On is a limit of 1 GHz for processors 2 and 3. */
    Name (\SWLM, 0)
    Device (\_SB.SWFN)
    {
        Name (_HID, EisaId ("PNP0C0B"))
        Method (_PS0) { SWST (3) }
        Method (_PS3) { SWST (0) }
        Method (SWST, 1)
        {
            Store (Arg0, \SWLM)
            Notify (\_SB.CPUS.C002, 0x80)
            Notify (\_SB.CPUS.C003, 0x80)
        }
    }

    Scope (\_SB.CPUS.C000)
    {
        Name (_PCT, Package () {
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x3EF) },
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x3EF) }
        })
        Method (_PPC) { Return (\SWLM) }
        Name (_PSD, Package () { Package () { 5, 0, 0, COORDINATION, 2 } })
        Method (_PSS) { Return (\SWPS) }
    }

    Scope (\_SB.CPUS.C001)
    {
        Name (_PCT, Package () {
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x3EF) },
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x3EF) }
        })
        Method (_PPC) { Return (\SWLM) }
        Name (_PSD, Package () { Package () { 5, 0, 0, COORDINATION, 2 } })
        Method (_PSS) { Return (\SWPS) }
    }

    Scope (\_SB.CPUS.C002)
    {
        Name (_PCT, Package () {
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x2EF) },
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x2EF) }
        })
        Method (_PPC) { Return (\SWLM) }
        Name (_PSD, Package () { Package () { 5, 0, 1, COORDINATION, 2 } })
        Method (_PSS) { Return (\SWPS) }
    }

    Scope (\_SB.CPUS.C003)
    {
        Name (_PCT, Package () {
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x2EF) },
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x2EF) }
        })
        Method (_PPC) { Return (\SWLM) }
        Name (_PSD, Package () { Package () { 5, 0, 1, COORDINATION, 2 } })
        Method (_PSS) { Return (\SWPS) }
    }
}
