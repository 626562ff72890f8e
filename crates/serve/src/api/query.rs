//! What follows `?` in a request.

use crate::backend::{Kind, Refusal};

/// The most parameters of a request.
const PARAMETERS_MAX: usize = 64;

/// The parameters of a request that nobody has taken yet, in order.
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what follows `?`.
    pub fn of(text: Option<&str>) -> Result<Query, Refusal> {
        let mut parameters = Vec::<(String, String)>::new();
        for (name, value) in form_urlencoded::parse(text.unwrap_or_default().as_bytes()) {
            if parameters.iter().any(|(other, _)| *other == name) {
                let message = format!("the parameter '{name}' is given twice");
                return Err(Refusal::new(Kind::Value, message));
            }
            if parameters.len() == PARAMETERS_MAX {
                let message = format!("there are more than {PARAMETERS_MAX} parameters");
                return Err(Refusal::new(Kind::Limit, message));
            }
            parameters.push((name.into_owned(), value.into_owned()));
        }
        Ok(Query(parameters))
    }

    /// Takes a parameter.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(own, _)| own == name)?;
        Some(self.0.remove(at).1)
    }

    /// Takes a number.
    pub fn number(&mut self, name: &str) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.take(name) else {
            return Ok(None);
        };
        let number = text.parse::<u64>();
        number.map(Some).map_err(|_| {
            let message = format!("{name}: '{text}' is not a number");
            Refusal::new(Kind::Value, message).hint(format!("use {name}=100"))
        })
    }

    /// Takes a switch: `name`, `name=true` or `name=false`.
    pub fn switch(&mut self, name: &str) -> Result<bool, Refusal> {
        match self.take(name).as_deref() {
            None | Some("false") => Ok(false),
            Some("" | "true") => Ok(true),
            Some(other) => {
                let message = format!("{name}: '{other}' is neither true nor false");
                Err(Refusal::new(Kind::Value, message))
            }
        }
    }

    /// Takes what is left.
    pub fn rest(self) -> Vec<(String, String)> {
        self.0
    }

    /// Nothing else is a parameter.
    pub fn end(self, known: &str) -> Result<(), Refusal> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                let message = format!("the parameter '{name}' is not supported here");
                Err(Refusal::new(Kind::Value, message).hint(format!("use {known}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_taken_once() {
        let mut query = Query::of(Some("k=a%20b%3D&limit=7&cascade&x=1+1")).unwrap();
        assert_eq!(query.take("k").as_deref(), Some("a b="));
        assert_eq!(query.take("k"), None);
        assert_eq!(query.number("limit"), Ok(Some(7)));
        assert_eq!(query.number("limit"), Ok(None));
        assert_eq!(query.switch("cascade"), Ok(true));
        assert_eq!(query.rest(), [("x".to_string(), "1 1".to_string())]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let of = |text| Query::of(Some(text));
        assert!(of("a=1&a=2").is_err());
        let many = (0..65).map(|number| format!("a{number}=1&"));
        let many = many.collect::<String>();
        assert_eq!(of(&many).err().unwrap().kind, Kind::Limit);
        for text in ["limit=", "limit=-1", "limit=1x"] {
            assert!(of(text).unwrap().number("limit").is_err(), "{text}");
        }
        assert!(of("cascade=yes").unwrap().switch("cascade").is_err());
        let message = of("b=1").unwrap().end("limit").unwrap_err().to_string();
        assert!(
            message.contains("'b'") && message.contains("limit"),
            "{message}"
        );
        Query::of(None).unwrap().end("nothing").unwrap();
    }
}
