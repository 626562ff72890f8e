//! Flink on several hosts: a JobManager and TaskManagers on the loopback address, a JVM each.
//!
//! They are the classes that Flink's own scripts start, from the jars of `make peers-flink`. Memory is what
//! Flink's example configuration gives a TaskManager (`taskmanager.memory.process.size: 1728m`), written
//! out, because it is its scripts that do this sum.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::HOSTS;
use super::cluster::{free_port, wait_until};
use super::process::{PATIENCE, Process, Used};
use crate::lab::write;
use crate::nexmark::flink::Flink;

const JOB_MANAGER: &str = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint";
const TASK_MANAGER: &str = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner";

/// The JVM's options for these, from the same script.
const JOB_MANAGER_MEMORY: [&str; 2] = ["-Xms1024m", "-Xmx1024m"];
const TASK_MANAGER_MEMORY: [&str; 4] = [
    "-Xms512m",
    "-Xmx512m",
    "-XX:MaxDirectMemorySize=256m",
    "-XX:MaxMetaspaceSize=256m",
];

/// A JobManager and its TaskManagers.
pub struct FlinkCluster {
    processes: Vec<Process>,
    /// The port at which the JobManager takes jobs.
    port: u16,
}

impl FlinkCluster {
    /// Runs a query to its end on a cluster of its own.
    ///
    /// # Errors
    ///
    /// If a JVM fails.
    pub fn run(flink: &Flink, folder: &Path, text: &str) -> Result<Used, String> {
        let query = folder.join("flink.sql");
        write(&query, text)?;
        let cluster = FlinkCluster::start(flink, folder)?;
        let mut client = java(flink, &[]);
        client.arg("slackwater.RunSql").arg(query);
        client.args([HOSTS.to_string(), cluster.port.to_string()]);
        let client = Process::start(client, folder, "flink-client")?;
        let mut used = client.finish(Instant::now() + PATIENCE)?;
        for process in cluster.processes {
            used = used + process.kill()?;
        }
        Ok(used)
    }

    fn start(flink: &Flink, folder: &Path) -> Result<FlinkCluster, String> {
        let port = free_port()?;
        let files = folder.join("flink-files");
        let created = std::fs::create_dir_all(&files);
        created.map_err(|error| format!("{}: {error}", files.display()))?;
        let text = configuration(free_port()?, port, &files);
        write(&folder.join("config.yaml"), &text)?;
        let start = |class: &str, memory: &[&str], name: &str| {
            let mut command = java(flink, memory);
            command.args([class, "--configDir"]).arg(folder);
            Process::start(command, folder, name)
        };
        let mut job_manager = start(JOB_MANAGER, &JOB_MANAGER_MEMORY, "flink-jobmanager")?;
        wait_until(
            "Flink's JobManager listens",
            PATIENCE,
            || match job_manager.is_over() {
                true => Err(job_manager.failed("it has ended")),
                false => Ok(TcpStream::connect(("127.0.0.1", port)).is_ok()),
            },
        )?;
        let mut processes = vec![job_manager];
        for host in 1..=HOSTS {
            let name = format!("flink-taskmanager-{host}");
            processes.push(start(TASK_MANAGER, &TASK_MANAGER_MEMORY, &name)?);
        }
        Ok(FlinkCluster { processes, port })
    }
}

fn java(flink: &Flink, options: &[&str]) -> Command {
    let mut command = Command::new("java");
    command.args(options).args(["-cp", &flink.classes()]);
    command
}

fn configuration(rpc_port: u16, rest_port: u16, files: &Path) -> String {
    let files = files.display();
    format!(
        "jobmanager.rpc.address: 127.0.0.1\n\
         jobmanager.rpc.port: {rpc_port}\n\
         jobmanager.bind-host: 127.0.0.1\n\
         rest.address: 127.0.0.1\n\
         rest.bind-address: 127.0.0.1\n\
         rest.port: {rest_port}\n\
         taskmanager.host: 127.0.0.1\n\
         taskmanager.bind-host: 127.0.0.1\n\
         taskmanager.numberOfTaskSlots: 1\n\
         taskmanager.cpu.cores: 1.0\n\
         taskmanager.memory.framework.heap.size: 128m\n\
         taskmanager.memory.framework.off-heap.size: 128m\n\
         taskmanager.memory.task.heap.size: 384m\n\
         taskmanager.memory.task.off-heap.size: 0m\n\
         taskmanager.memory.managed.size: 512m\n\
         taskmanager.memory.network.min: 128m\n\
         taskmanager.memory.network.max: 128m\n\
         taskmanager.memory.jvm-metaspace.size: 256m\n\
         taskmanager.memory.jvm-overhead.min: 192m\n\
         taskmanager.memory.jvm-overhead.max: 192m\n\
         io.tmp.dirs: {files}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_of_flink_has_a_line() {
        let text = configuration(1, 2, Path::new("/folder"));
        let settings = text.lines().map(|line| line.split_once(": ").unwrap());
        let settings = settings.collect::<std::collections::BTreeMap<_, _>>();
        assert_eq!(settings.len(), text.lines().count());
        assert_eq!(settings["rest.port"], "2");
        assert_eq!(settings["io.tmp.dirs"], "/folder");
    }
}
