//! `slackwater serve`.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slackwater_serve::backend::{Backend, Refusal};
use slackwater_serve::{api, http, postgres};

use super::doors::token;
use super::hosts::{check_name, listen_at, secret};
use crate::address::resolve;
use crate::hosts::host_name;
use crate::server::{Admits, Doors, Format, Level, Log, Server};
use crate::terminal::{FAILED, USAGE, say};

#[derive(Args)]
pub(super) struct ServeArguments {
    /// Keep what is declared, and the state of jobs, in this directory
    #[arg(long, value_name = "DIR", default_value = "slackwater-data")]
    dir: PathBuf,
    /// Listen for PostgreSQL's protocol at this address; 'off' for not at all
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7432")]
    pg: String,
    /// Listen for HTTP at this address: the page, the API and the metrics; 'off' for not at all
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7480")]
    http: String,
    /// Answer only HTTP requests that show this token (Authorization: Bearer TOKEN); needed where other
    /// machines can reach the address [default: $SLACKWATER_TOKEN]
    #[arg(long)]
    token: Option<String>,
    /// With --pg, let in only these users: a file of lines such as user:password. Needed where other
    /// machines can reach the address
    #[arg(long, value_name = "FILE")]
    passwords: Option<PathBuf>,
    /// With --tls-key: the certificate for clients that use TLS, as a PEM file with its chain
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The key of --tls-certificate, as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Take functions in Python (CREATE FUNCTION): whoever may send statements then runs programs with the
    /// rights of the server
    #[arg(long)]
    allow_functions: bool,
    /// Where agents of other hosts join (slackwater worker), for jobs with SET 'hosts' = 'N'
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// With --listen: the file with the key that agents need, too (see slackwater key), or with certificates
    #[arg(long, value_name = "FILE", requires = "listen")]
    secret: Option<PathBuf>,
    /// With --listen: the name of this host [default: what the system calls it]
    #[arg(long, value_name = "NAME", requires = "listen")]
    name: Option<String>,
    /// How the log is written, on standard error
    #[arg(long, value_enum, default_value_t)]
    log: Format,
}

/// The word for a door that stays closed.
const OFF: &str = "off";

/// What an address looks like.
const ADDRESS: &str = "one such as 127.0.0.1:7432, or 'off'";

/// Why the server does not start, and the exit code.
type Failed = (String, u8);

/// Serves until a signal comes.
pub(super) fn serve(arguments: &ServeArguments) -> ExitCode {
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err((error, code)) => {
            say(&format!("error: {error}\n"));
            ExitCode::from(code)
        }
    }
}

fn run(arguments: &ServeArguments) -> Result<(), Failed> {
    let log = Log::new(arguments.log);
    allow_many_files();
    // Before anything starts, so that a wrong option changes nothing.
    let postgres = postgres_options(arguments)?;
    let http = http_address(arguments)?;
    let (tell, told) = mpsc::sync_channel(1);
    let watching = crate::signals::watch(move || {
        // A second signal changes nothing.
        let _ = tell.try_send(());
    });
    let _watching = watching.map_err(|error| (format!("signals: {error}"), FAILED))?;
    let admits = admits(arguments).map_err(|error| (error, USAGE))?;
    let server = Server::start(&arguments.dir, log, admits, arguments.allow_functions);
    let server = server.map_err(|error| (error, FAILED))?;
    let backend: Arc<dyn Backend> = Arc::new(Doors(Arc::clone(&server)));
    let opened = postgres.map(|options| postgres::open(Arc::clone(&backend), options));
    let door = match opened.transpose() {
        Ok(door) => door,
        Err(refusal) => {
            server.stop();
            return Err((format!("--pg: {}", shown(&refusal)), FAILED));
        }
    };
    let page = match http.map(|address| open_http(arguments, address, &server, &backend)) {
        None => None,
        Some(Ok(page)) => Some(page),
        Some(Err(error)) => {
            server.stop();
            return Err((error, FAILED));
        }
    };
    if let Some(page) = &page {
        let address = page.address();
        log.server(
            Level::Info,
            &format!("ready for a browser at http://{address}/"),
        );
    }
    if let Some(door) = &door {
        let (ip, port) = (door.address().ip(), door.address().port());
        log.server(Level::Info, &format!("ready for psql -h {ip} -p {port}"));
    }
    crate::service::tell_ready();
    // Nothing happens here until the end (I7).
    let _ = told.recv();
    log.server(Level::Info, "ending: jobs save their state");
    drop((door, page));
    server.stop();
    log.server(Level::Info, "ended");
    Ok(())
}

/// Which hosts may join.
fn admits(arguments: &ServeArguments) -> Result<Admits, String> {
    let Some(listen) = &arguments.listen else {
        return Ok(Admits::default());
    };
    let address = listen_at(listen, arguments.secret.is_some())?;
    if address.ip().is_unspecified() {
        return Err(format!(
            "--listen {listen}: processes of other hosts are told this address\n  \
             = name one at which they reach this host, such as 10.0.0.1:7070"
        ));
    }
    let name = arguments.name.clone().unwrap_or_else(host_name);
    check_name(&name)?;
    Ok(Admits {
        listen: Some(address),
        secret: arguments.secret.as_deref().map(secret).transpose()?,
        name,
    })
}

fn http_address(arguments: &ServeArguments) -> Result<Option<SocketAddr>, Failed> {
    match arguments.http.as_str() {
        OFF => Ok(None),
        address => resolve("--http", address, ADDRESS)
            .map(Some)
            .map_err(|error| (error, USAGE)),
    }
}

fn open_http(
    arguments: &ServeArguments,
    address: SocketAddr,
    server: &Arc<Server>,
    backend: &Arc<dyn Backend>,
) -> Result<http::Server, String> {
    let measured = Arc::clone(server);
    let options = api::Options {
        address,
        token: token(arguments.token.clone()),
        limits: http::Limits::default(),
        pages: Box::new(move |partitions| measured.metrics(partitions)),
    };
    api::open(Arc::clone(backend), options).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::PermissionDenied => "set SLACKWATER_TOKEN or --token, or use 127.0.0.1",
            ErrorKind::AddrInUse => "use another port; 0 takes any that is free",
            _ => "use an address of this machine, such as 127.0.0.1:7480",
        };
        format!("--http {address}: {error}\n  = {hint}")
    })
}

fn postgres_options(arguments: &ServeArguments) -> Result<Option<postgres::Options>, Failed> {
    if arguments.pg == OFF {
        return Ok(None);
    }
    let usage = |error: String| (error, USAGE);
    let address = resolve("--pg", &arguments.pg, ADDRESS).map_err(usage)?;
    let passwords = match &arguments.passwords {
        Some(path) => Some(passwords(path).map_err(usage)?),
        None => None,
    };
    let tls = match (&arguments.tls_certificate, &arguments.tls_key) {
        (Some(certificate), Some(key)) => {
            let tls = postgres::tls(certificate, key);
            Some(tls.map_err(|refusal| usage(format!("--tls-certificate: {}", shown(&refusal))))?)
        }
        _ => None,
    };
    if passwords.is_none() && !address.ip().is_loopback() {
        return Err(usage(format!(
            "--pg {address}: other machines can reach this address, and anybody could drop everything\n  \
             = let in users of a file: --passwords FILE, or listen at 127.0.0.1"
        )));
    }
    Ok(Some(postgres::Options {
        address,
        passwords,
        tls,
        limits: postgres::Limits::default(),
    }))
}

fn passwords(path: &Path) -> Result<postgres::Passwords, String> {
    let shown_path = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        let hint = "the user of this process has to be able to read it; a line is USER:PASSWORD";
        format!("--passwords {shown_path}: {error}\n  = {hint}")
    })?;
    let read = postgres::Passwords::read(&text);
    read.map_err(|refusal| format!("--passwords {shown_path}: {}", shown(&refusal)))
}

fn shown(refusal: &Refusal) -> String {
    match &refusal.hint {
        Some(hint) => format!("{}\n  = {hint}", refusal.message),
        None => refusal.message.clone(),
    }
}

/// Each job and each client is a few open files: as many as the system allows.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // The limit that holds otherwise is an error for the client that exceeds it.
    let _ = setrlimit(Resource::Nofile, raised);
}
