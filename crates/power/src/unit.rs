//! What `slackwater-power unit` prints: how to run it with as few permissions as possible.

/// A unit of systemd, a rule of udev, and a user of Redis.
pub const TEXT: &str = "\
# /etc/systemd/system/slackwater-power.service
[Unit]
Description=Power manager for replicated servers
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=/usr/bin/slackwater-power --config /etc/slackwater/power.toml
# Runs also after a process was killed: everything that was set is undone.
ExecStopPost=/usr/bin/slackwater-power restore
Restart=always
RestartSec=1
RuntimeDirectory=slackwater
RuntimeDirectoryPreserve=yes
# Pinning takes CAP_SYS_NICE, batching takes CAP_SYS_PTRACE (leave it out without lag), files of other
# users take CAP_DAC_OVERRIDE (leave it out with the rule below and Group=slackwater-power), and giving up
# permissions takes CAP_SETUID and CAP_SETGID.
CapabilityBoundingSet=CAP_SYS_NICE CAP_SYS_PTRACE CAP_DAC_OVERRIDE CAP_SETUID CAP_SETGID CAP_SYS_RESOURCE
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
# Not ProtectKernelTunables=yes: it makes the frequencies read-only. Not PrivatePIDs=yes: it hides servers.
ReadWritePaths=/sys/devices/system/cpu /run/slackwater
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
LockPersonality=yes
MemoryMax=64M

[Install]
WantedBy=multi-user.target

# /etc/udev/rules.d/60-slackwater-power.rules, with a group slackwater-power: then nothing has to run as root
# to set frequencies and to read energy
SUBSYSTEM==\"cpu\", ACTION==\"add\", RUN+=\"/bin/sh -c 'chgrp slackwater-power \
/sys%p/cpufreq/scaling_max_freq \
/sys%p/cpufreq/energy_performance_preference; chmod g+w /sys%p/cpufreq/scaling_max_freq \
/sys%p/cpufreq/energy_performance_preference'\"
SUBSYSTEM==\"powercap\", ACTION==\"add\", RUN+=\"/bin/sh -c 'chgrp slackwater-power /sys%p/energy_uj; \
chmod g+r /sys%p/energy_uj'\"

# A user of Redis, Valkey or Sentinel who may ask and nothing else; >PASSWORD is its password
ACL SETUSER power on >PASSWORD -@all +ping +info +role +subscribe +psubscribe +cluster|shards +client|setname
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_undoes_and_restarts() {
        for line in [
            "ExecStopPost=/usr/bin/slackwater-power restore\n",
            "Restart=always\n",
            "+info +role",
        ] {
            assert!(TEXT.contains(line), "{line}");
        }
    }
}
