//! Controls a leader: a process that takes orders.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::order::{Answer, Order};

/// A process that leads one kind. Dropping it ends it and its follower.
pub struct Leader {
    name: String,
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Leader {
    /// Starts the leader; `name` is the kind's, for errors.
    pub fn start(name: &str, mut command: Command) -> Result<Leader, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let program = command.get_program().display().to_string();
        let mut child = command
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let orders = child.stdin.take();
        let answers = child.stdout.take().expect("it is piped");
        Ok(Leader {
            name: name.to_string(),
            child,
            orders,
            answers: BufReader::new(answers),
        })
    }

    /// Measures one point.
    pub fn measure(&mut self, order: &Order) -> Result<Answer, String> {
        let mut line = serde_json::to_string(order).map_err(|error| error.to_string())?;
        line.push('\n');
        let orders = self.orders.as_mut().expect("open until the drop");
        // If the leader is gone, the answer is missing, too, which is reported below.
        let _ = orders.write_all(line.as_bytes());
        let mut answer = String::new();
        let read = self.answers.read_line(&mut answer);
        if !matches!(read, Ok(1..)) {
            let _ = self.child.kill();
            let ended = self.child.wait();
            let ended = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            let size = order.size_bytes;
            return Err(format!(
                "measuring {} with messages of {size} bytes failed: {ended}; the reason is above",
                self.name
            ));
        }
        serde_json::from_str(&answer).map_err(|error| format!("{}: {error}", self.name))
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // The end of its input ends the leader and its follower.
        self.orders = None;
        let _ = self.child.wait();
    }
}
