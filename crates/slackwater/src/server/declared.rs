//! What a server has declared: the catalog, and what is known of each name from its statement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use slackwater_serve::backend::{Column, Kind as Wrong, Refusal};
use slackwater_sql::error::nearest;
use slackwater_sql::program::{compile, declared};
use slackwater_sql::statement::{parse, plain_view, server};
use slackwater_sql::types::sql_name;
use slackwater_sql::{Program, SqlError};

use super::catalog::{Catalog, Kind, Object};
use crate::catalog::BuiltIn;
use crate::reads::Readable;
use crate::script::Script;

/// What has a name, and what its statement says.
#[derive(Debug, Clone)]
pub struct Known {
    /// As it is kept.
    pub object: Object,
    /// The columns; none for the job of an INSERT.
    pub columns: Vec<Column>,
    /// The tables and views that its statement uses itself.
    pub uses: BTreeSet<String>,
    /// The connector of a table or sink.
    pub connector: Option<String>,
    /// The columns that identify a row of a materialized view; `None` if there may be equal rows.
    pub key: Option<Vec<usize>>,
}

/// A statement that was examined.
#[derive(Debug, Default)]
pub struct Examined {
    /// The columns.
    pub columns: Vec<Column>,
    /// The tables and views that it uses itself.
    pub uses: BTreeSet<String>,
    /// The connector of a table or sink.
    pub connector: Option<String>,
    /// The columns that identify a row of a materialized view; `None` if there may be equal rows.
    pub key: Option<Vec<usize>>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

impl Known {
    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        let columns = self.columns.iter();
        let fields = columns
            .map(|column| Field::new(&column.name, column.data_type.clone(), column.nullable));
        Arc::new(Schema::new(fields.collect::<Vec<Field>>()))
    }

    /// What is kept, and what was found out about it.
    pub fn of(object: Object, examined: Examined) -> Known {
        Known {
            object,
            columns: examined.columns,
            uses: examined.uses,
            connector: examined.connector,
            key: examined.key,
        }
    }
}

/// All that was declared.
pub struct Declared {
    /// Where it is kept.
    pub catalog: Catalog,
    /// By name.
    pub known: BTreeMap<String, Known>,
    /// Counts the changes, so that what was made of it is made again.
    pub version: u64,
    /// Whether statements may declare and call functions.
    allows_functions: bool,
}

/// A statement that was not declared before.
pub struct New<'a> {
    /// The name.
    pub name: &'a str,
    /// What it is.
    pub kind: Kind,
    /// The statement.
    pub text: &'a str,
    /// The settings that apply.
    pub settings: &'a [(String, String)],
}

impl Declared {
    /// What a catalog has. What is wrong with a statement is returned beside: a newer version of the program
    /// may refuse what an older one has taken.
    ///
    /// # Errors
    ///
    /// If the catalog can't be read.
    pub fn of(
        catalog: Catalog,
        allows_functions: bool,
    ) -> Result<(Declared, Vec<(String, Refusal)>), String> {
        let objects = catalog.objects()?;
        let mut declared = Declared {
            catalog,
            known: BTreeMap::new(),
            version: 0,
            allows_functions,
        };
        let mut wrong = Vec::new();
        for object in objects {
            let new = New {
                name: &object.name,
                kind: object.kind,
                text: &object.text,
                settings: &object.settings,
            };
            let examined = declared.examine(&new).unwrap_or_else(|refusal| {
                wrong.push((object.name.clone(), refusal));
                Examined::default()
            });
            let known = Known::of(object, examined);
            declared.known.insert(known.object.name.clone(), known);
        }
        Ok((declared, wrong))
    }

    /// The materialized views, as reads know them, and the views that read only these, as one text.
    pub fn readable(&self) -> (Vec<Readable>, String) {
        let mut known = self.known.values().collect::<Vec<&Known>>();
        known.sort_by_key(|known| known.object.ordinal);
        let (mut views, mut names, mut text) = (Vec::new(), BTreeSet::new(), String::new());
        for known in known {
            let name = &known.object.name;
            match known.object.kind {
                // One without columns is not valid any more.
                Kind::MaterializedView if !known.columns.is_empty() => {
                    names.insert(name.as_str());
                    views.push(Readable {
                        name: name.clone(),
                        schema: known.schema(),
                        key: known.key.clone(),
                    });
                }
                Kind::View if known.uses.iter().all(|used| names.contains(used.as_str())) => {
                    names.insert(name.as_str());
                    text.push_str(&known.object.text);
                    text.push_str(";\n");
                }
                _ => {}
            }
        }
        (views, text)
    }

    /// Checks a statement that declares something.
    ///
    /// # Errors
    ///
    /// If it is not valid with what was declared.
    pub fn examine(&self, new: &New<'_>) -> Result<Examined, Refusal> {
        let script = self.assembled(new.name, new.text, new.kind == Kind::View)?;
        let refused = |error: SqlError| self.refused(&script, &error, new);
        let session = declared(script.text(), new.settings, &BuiltIn).map_err(refused)?;
        let table = session.tables.get(new.name);
        let connector = table.and_then(|table| table.options.get("connector").cloned());
        let of_table = table.map(|table| {
            let key = table.primary_key.iter();
            let key = key.map(|&at| table.physical.field(at).name().as_str());
            let key = key.collect::<BTreeSet<&str>>();
            let not_null = table.not_null.iter();
            let not_null = not_null.map(|&at| table.physical.field(at).name().as_str());
            let not_null = not_null.collect::<BTreeSet<&str>>();
            let mut columns = columns(&table.schema, |name| key.contains(name));
            for column in &mut columns {
                column.nullable &= !not_null.contains(column.name.as_str());
            }
            columns
        });
        if !new.kind.is_job() {
            let of_view = || {
                let columns = session
                    .view_columns(new.name)
                    .unwrap_or_default()
                    .into_iter();
                let columns = columns.map(|(name, data_type)| Column {
                    name,
                    data_type,
                    nullable: true,
                    is_key: false,
                });
                columns.collect()
            };
            return Ok(Examined {
                columns: of_table.unwrap_or_else(of_view),
                uses: session.take_used(),
                connector,
                key: None,
                warnings: session.settings.notes.clone(),
            });
        }
        let mut compiled = compile(script.text(), new.settings, &BuiltIn).map_err(refused)?;
        script.warn(&mut compiled.run);
        let statements = parse(new.text).map_or(1, |statements| statements.len());
        let own = compiled.uses.len().saturating_sub(statements);
        let uses = compiled.uses[own..].iter().flatten().cloned().collect();
        Ok(Examined {
            columns: of_table.unwrap_or_else(|| columns_of_view(&compiled.run, new.name)),
            uses,
            connector,
            key: key_of_view(&compiled.run, new.name),
            warnings: compiled.run.warnings,
        })
    }

    /// The error of a statement.
    fn refused(&self, script: &Script, error: &SqlError, new: &New<'_>) -> Refusal {
        let refusal = refusal(script, error, new.text);
        let mut known = self.known.values();
        let kept = known.find(|known| {
            let object = &known.object;
            object.kind == Kind::MaterializedView
                && error.message == format!("there is no table or view '{}'", object.name)
        });
        let Some(kept) = kept else {
            return self.with_near_name(refusal);
        };
        let name = &kept.object.name;
        let message = format!(
            "materialized view '{name}' can't be used by other jobs, because it has a PRIMARY KEY or \
            options of its own"
        );
        Refusal {
            position: refusal.position,
            ..Refusal::new(Wrong::Syntax, message)
                .hint("use its query, or create a view with its query for both")
        }
    }

    /// Suggests a name instead of one that is not there: the program has only names that the statement has.
    fn with_near_name(&self, refusal: Refusal) -> Refusal {
        let name = ["there is no table or view '", "there is no table '"];
        let mut name = name
            .iter()
            .filter_map(|words| refusal.message.strip_prefix(words));
        let name = name.next().and_then(|rest| rest.strip_suffix('\''));
        let known = self
            .known
            .values()
            .filter(|known| known.object.kind != Kind::Insert);
        let known = known
            .map(|known| known.object.name.clone())
            .collect::<Vec<String>>();
        match name.and_then(|name| nearest(name, &known)) {
            Some(near) => refusal.hint(format!("did you mean '{near}'?")),
            None => refusal,
        }
    }

    /// The program of a statement: what it needs, in the order in which it was declared, and the statement
    /// under its name.
    ///
    /// # Errors
    ///
    /// If it is not made of words of SQL, or it uses a materialized view that other jobs can't use.
    pub fn script(&self, name: &str, text: &str) -> Result<Script, Refusal> {
        self.assembled(name, text, false)
    }

    fn assembled(&self, name: &str, text: &str, is_read: bool) -> Result<Script, Refusal> {
        let mut script = Script::default();
        for (name, text) in self.needed(name, text, is_read)? {
            script.add(&name, &text);
        }
        Ok(script)
    }

    /// The parts of the program of a statement: see [`Declared::script`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn parts(&self, name: &str, text: &str) -> Result<Vec<(String, String)>, Refusal> {
        self.needed(name, text, false)
    }

    /// The same, for a view that may also be read: then it may use the rows of any materialized view.
    fn needed(
        &self,
        name: &str,
        text: &str,
        is_read: bool,
    ) -> Result<Vec<(String, String)>, Refusal> {
        let words = |text: &str| {
            server::words(text).map_err(|error| refusal(&Script::new(name, text), &error, text))
        };
        // A word may be the name of something else, which then is declared in vain.
        let mut needed = BTreeMap::new();
        let mut open = words(text)?;
        while let Some(word) = open.pop_first() {
            let function = || {
                let function = self.known.get(&word.to_lowercase());
                function.filter(|known| known.object.kind == Kind::Function)
            };
            let known = self.known.get(&word).or_else(function);
            let Some(known) = known.filter(|known| known.object.name != name) else {
                continue;
            };
            // What was declared later can't be used by what is needed.
            if needed.insert(known.object.ordinal, known).is_none() {
                open.extend(words(&known.object.text)?);
            }
        }
        let own = self.known.get(name).map(|known| known.object.ordinal);
        let mut parts = Vec::new();
        for (ordinal, known) in needed {
            if own.is_some_and(|own| ordinal >= own) {
                continue;
            }
            let Object {
                name, kind, text, ..
            } = &known.object;
            match kind {
                Kind::Table | Kind::View => parts.push((name.clone(), text.clone())),
                Kind::Function => {
                    self.allows_function(name)?;
                    parts.push((name.clone(), text.clone()));
                }
                Kind::MaterializedView => match plain_view(text) {
                    Ok(Some(text)) => parts.push((name.clone(), text)),
                    // Its rows are not those of its query: only reads can use them.
                    Ok(None) if is_read => parts.push((name.clone(), as_table(known))),
                    Ok(None) | Err(_) => {}
                },
                Kind::Sink | Kind::Insert => {}
            }
        }
        parts.push((name.to_string(), text.to_string()));
        Ok(parts)
    }

    /// Whether functions may be declared and called.
    ///
    /// # Errors
    ///
    /// If not.
    pub fn allows_function(&self, name: &str) -> Result<(), Refusal> {
        if self.allows_functions {
            return Ok(());
        }
        let message = format!("function '{name}': this server takes no functions");
        Err(Refusal::new(Wrong::Denied, message)
            .hint("they run with its rights: slackwater serve --allow-functions"))
    }

    /// The names that use this one, directly or through others, in the order of their declaration.
    pub fn dependents(&self, name: &str) -> Vec<&Known> {
        let mut found = BTreeMap::new();
        let mut open = vec![name];
        while let Some(used) = open.pop() {
            for known in self
                .known
                .values()
                .filter(|known| known.uses.contains(used))
            {
                if found.insert(known.object.ordinal, known).is_none() {
                    open.push(&known.object.name);
                }
            }
        }
        found.into_values().collect()
    }
}

fn columns(schema: &Schema, is_key: impl Fn(&str) -> bool) -> Vec<Column> {
    let fields = schema.fields().iter();
    let columns = fields.map(|field| Column {
        name: field.name().clone(),
        data_type: field.data_type().clone(),
        nullable: field.is_nullable(),
        is_key: is_key(field.name()),
    });
    columns.collect()
}

/// A table with the columns of a materialized view, which nothing opens.
fn as_table(known: &Known) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let columns = known.columns.iter();
    let columns =
        columns.map(|column| format!("{} {}", quoted(&column.name), sql_name(&column.data_type)));
    format!(
        "CREATE TABLE {} ({}) WITH ('connector' = 'tcp', 'address' = '127.0.0.1:1')",
        quoted(&known.object.name),
        columns.collect::<Vec<String>>().join(", ")
    )
}

/// The columns that identify a row of a materialized view.
fn key_of_view(program: &Program, name: &str) -> Option<Vec<usize>> {
    let view = program.views.iter().find(|view| view.name == name);
    view.and_then(|view| view.key.clone())
}

/// The columns of a materialized view; none for the job of an INSERT.
fn columns_of_view(program: &Program, name: &str) -> Vec<Column> {
    let view = program.views.iter().find(|view| view.name == name);
    let view = view.map(|view| {
        let key = view.key.iter().flatten();
        let key = key.map(|&at| view.schema.field(at).name().as_str());
        let key = key.collect::<BTreeSet<&str>>();
        columns(&view.schema, |name| key.contains(name))
    });
    view.unwrap_or_default()
}

/// The error of a statement that is the last part of a script.
pub fn refusal(script: &Script, error: &SqlError, text: &str) -> Refusal {
    let is_own = script
        .part_of(error)
        .is_none_or(|part| part + 1 == script.parts());
    let kind = kind(&error.message);
    if !is_own {
        return Refusal::new(kind, script.render(error));
    }
    let mut refusal = Refusal::new(kind, error.message.clone());
    if !error.hint.is_empty() {
        refusal = refusal.hint(error.hint.clone());
    }
    refusal.position = script
        .place_in_last(error)
        .map(|place| position(text, place.line, place.column));
    refusal
}

/// The kind of an error, as far as its words say it.
fn kind(message: &str) -> Wrong {
    if message.contains("there is already") {
        return Wrong::Duplicate;
    }
    if message.contains("there is no column ") {
        return Wrong::UndefinedColumn;
    }
    match message.contains("there is no ") {
        true => Wrong::Undefined,
        false => Wrong::Syntax,
    }
}

/// The place of a line and a column in a text, counted in characters from 0.
fn position(text: &str, line: usize, column: usize) -> usize {
    let before = text.split_inclusive('\n').take(line.saturating_sub(1));
    let before = before.map(|line| line.chars().count()).sum::<usize>();
    before + column.saturating_sub(1)
}
