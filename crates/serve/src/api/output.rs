//! An answer that is being written.
//!
//! A short one is sent whole, with the status of how it ended. A longer one begins with success and is sent
//! piece by piece; what fails then is said at its end, or breaks it off where its form has no room for that.

use bytes::Bytes;

use crate::backend::{Cancelled, Kind, Refusal, Rows};
use crate::http::{Answer, Outlet, Reply, StatusCode};

use super::Refused;
use super::forms::Form;
use super::rows::{RowsWriter, done};

/// The bytes that are sent at once.
const PIECE_BYTES: usize = 64 << 10;

/// The rows that are written before the size of a piece is looked at.
const PIECE_ROWS: usize = 1024;

/// Why no more is written.
pub enum Stop {
    /// The client has gone.
    Gone,
    /// Something was refused.
    Refused(Refused),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal.into())
    }
}

/// An answer.
pub struct Output {
    form: Form,
    cancelled: Cancelled,
    reply: Option<Reply>,
    /// Where pieces go, once the first was sent.
    outlet: Option<Outlet>,
    piece: Vec<u8>,
}

impl Output {
    /// An answer of a form to `reply`. `cancelled` is set when the client has gone.
    pub fn new(form: Form, cancelled: Cancelled, reply: Reply) -> Output {
        Output {
            form,
            cancelled,
            reply: Some(reply),
            outlet: None,
            piece: Vec::new(),
        }
    }

    /// Set when the client has gone.
    pub fn cancelled(&self) -> &Cancelled {
        &self.cancelled
    }

    /// A statement was done. `is_last`: no other follows.
    pub fn done(&mut self, tag: &str, notices: &[String], is_last: bool) -> Result<(), Stop> {
        match self.form {
            Form::Lines => done(&mut self.piece, tag, notices),
            Form::Text => {
                for notice in notices {
                    self.piece
                        .extend_from_slice(format!("NOTICE: {notice}\n").as_bytes());
                }
                self.piece.extend_from_slice(format!("{tag}\n").as_bytes());
            }
            // They have room for rows only.
            Form::Json | Form::Arrow | Form::Csv | Form::Events if is_last => {
                self.form = Form::Lines;
                done(&mut self.piece, tag, notices);
            }
            Form::Json | Form::Arrow | Form::Csv | Form::Events => {}
        }
        self.send_if_full()
    }

    /// The rows of a statement. `is_last`: no other follows.
    pub fn rows(&mut self, rows: Rows, is_last: bool) -> Result<(), Stop> {
        if self.form.is_single() && !is_last {
            let message = "only the last statement may return rows in this form";
            let refusal = Refusal::new(Kind::Value, message);
            return Err(refusal.hint("use application/x-ndjson").into());
        }
        let mut writer = RowsWriter::begin(self.form, &rows.schema, &mut self.piece);
        let mut count = 0;
        if rows.are_changes {
            self.send(true)?;
        }
        for batch in rows.batches {
            let batch = batch?;
            count += batch.num_rows() as u64;
            for begin in (0..batch.num_rows()).step_by(PIECE_ROWS) {
                let part = batch.slice(begin, PIECE_ROWS.min(batch.num_rows() - begin));
                let writer = writer.as_mut().map_err(|error| not_written(error))?;
                writer
                    .write(&part, &mut self.piece)
                    .map_err(|error| not_written(&error))?;
                self.send_if_full()?;
            }
            if rows.are_changes {
                self.send(true)?;
            }
            if self.cancelled.is_set() {
                return Err(Stop::Gone);
            }
        }
        let ended = writer.and_then(|writer| writer.end(count, &mut self.piece));
        ended.map_err(|error| not_written(&error))?;
        self.send_if_full()
    }

    /// All is written.
    pub fn end(mut self) {
        match self.reply.take() {
            Some(reply) => {
                let body = std::mem::take(&mut self.piece);
                let answer = Answer::new(StatusCode::OK, self.form.content_type(), body);
                reply.send(answer.with("cache-control", "no-store"));
            }
            None => self.end_pieces(),
        }
    }

    /// Something was refused.
    pub fn refuse(mut self, refused: Refused) {
        let Some(reply) = self.reply.take() else {
            if self.say(&refused.refusal) {
                self.end_pieces();
            }
            // Otherwise the outlet is dropped, and the client sees that the answer broke off.
            return;
        };
        // What was done before stays said.
        if self.piece.is_empty() || !self.say(&refused.refusal) {
            return reply.send(refused.into_answer());
        }
        let body = std::mem::take(&mut self.piece);
        reply.send(Answer::new(refused.status, self.form.content_type(), body));
    }

    /// Writes a refusal after what was written, if the form has room for one.
    fn say(&mut self, refusal: &Refusal) -> bool {
        let text = match self.form {
            Form::Lines => format!("{}\n", refusal.json()),
            Form::Events => format!("event: failed\ndata: {}\n\n", refusal.json()),
            Form::Text => format!("ERROR: {refusal}\n"),
            Form::Json | Form::Arrow | Form::Csv => return false,
        };
        self.piece.extend_from_slice(text.as_bytes());
        true
    }

    fn end_pieces(mut self) {
        if self.send(false).is_ok()
            && let Some(outlet) = self.outlet
        {
            outlet.end();
        }
    }

    fn send_if_full(&mut self) -> Result<(), Stop> {
        match self.piece.len() < PIECE_BYTES {
            true => Ok(()),
            false => self.send(false),
        }
    }

    /// Sends what is written. `lasts`: the answer goes on as long as the client listens.
    fn send(&mut self, lasts: bool) -> Result<(), Stop> {
        if let Some(reply) = self.reply.take() {
            let kind = self.form.content_type();
            let (outlet, answer) = Answer::stream(kind, lasts, self.cancelled.clone());
            self.outlet = Some(outlet);
            reply.send(answer);
        }
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        let outlet = self.outlet.as_ref().filter(|_| !piece.is_empty());
        match outlet.is_none_or(|outlet| outlet.send(piece)) {
            true => Ok(()),
            false => Err(Stop::Gone),
        }
    }
}

fn not_written(error: &arrow_schema::ArrowError) -> Stop {
    let message = format!("a value can't be written in this form: {error}");
    let hint = "use another form, such as application/x-ndjson";
    Refusal::new(Kind::Value, message).hint(hint).into()
}
