//! Functions that the optimizer replaces by another expression.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_schema::DataType;
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::conditional_expressions::CaseBuilder;
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::type_coercion::binary::{BinaryTypeCoercer, type_union_coercion};
use datafusion_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, binary_expr, cast, lit,
};

use super::values::fits;
use crate::error::SqlError;
use crate::types::sql_name;

/// The types of the arguments, and of the result.
type Types = (Vec<DataType>, DataType);

/// A function that is replaced by another expression.
struct Form {
    name: &'static str,
    /// The function's arguments, for messages.
    shape: &'static str,
    /// The types that the arguments are cast to, and the type of the result.
    types: fn(&[DataType]) -> Option<Types>,
    /// The expression that replaces the call.
    form: fn(Vec<Expr>) -> Result<Expr>,
    /// Whether some arguments are not computed for every row.
    is_lazy: bool,
}

const FORMS: [Form; 8] = [
    Form {
        name: "if",
        shape: "condition, value, value",
        types: |given| match given {
            [condition, one, other] if fits(condition, &DataType::Boolean) => {
                let result = type_union_coercion(one, other)?;
                let arguments = vec![DataType::Boolean, result.clone(), result.clone()];
                Some((arguments, result))
            }
            _ => None,
        },
        form: |arguments| {
            let [condition, one, other] = exactly(arguments)?;
            CaseBuilder::new(None, vec![condition], vec![one], Some(Box::new(other))).end()
        },
        is_lazy: true,
    },
    Form {
        name: "mod",
        shape: "number, number",
        types: |given| match given {
            [one, other] => {
                let coercer = BinaryTypeCoercer::new(one, &Operator::Modulo, other);
                let (one, other) = coercer.get_input_types().ok()?;
                let coercer = BinaryTypeCoercer::new(&one, &Operator::Modulo, &other);
                let result = coercer.get_result_type().ok()?;
                Some((vec![one, other], result))
            }
            _ => None,
        },
        form: |arguments| {
            let [one, other] = exactly(arguments)?;
            Ok(binary_expr(one, Operator::Modulo, other))
        },
        is_lazy: false,
    },
    hash("sha224", |text| hex_of_digest(text, "sha224")),
    hash("sha256", |text| hex_of_digest(text, "sha256")),
    hash("sha384", |text| hex_of_digest(text, "sha384")),
    hash("sha512", |text| hex_of_digest(text, "sha512")),
    hash("to_base64", |text| {
        let [text] = exactly(text)?;
        Ok(to_text(call(
            datafusion_functions::encoding::encode(),
            [bytes_of(text), lit("base64pad")],
        )))
    }),
    hash("from_base64", |text| {
        let [text] = exactly(text)?;
        let bytes = call(
            datafusion_functions::encoding::decode(),
            [bytes_of(text), lit("base64pad")],
        );
        Ok(to_text(bytes))
    }),
];

/// A function from string to string.
const fn hash(name: &'static str, form: fn(Vec<Expr>) -> Result<Expr>) -> Form {
    Form {
        name,
        shape: "STRING",
        types: |given| match given {
            [text] if fits(text, &DataType::Utf8View) => {
                Some((vec![DataType::Utf8View], DataType::Utf8View))
            }
            _ => None,
        },
        form,
        is_lazy: false,
    }
}

fn call<const N: usize>(function: Arc<ScalarUDF>, arguments: [Expr; N]) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments.to_vec()))
}

/// The argument of ENCODE and DECODE: it is added after type coercion, so it needs its own cast.
fn bytes_of(text: Expr) -> Expr {
    cast(cast(text, DataType::Utf8), DataType::Binary)
}

fn to_text(value: Expr) -> Expr {
    cast(value, DataType::Utf8View)
}

fn hex_of_digest(text: Vec<Expr>, algorithm: &str) -> Result<Expr> {
    let [text] = exactly(text)?;
    let digest = call(
        datafusion_functions::crypto::digest(),
        [text, lit(algorithm)],
    );
    Ok(to_text(call(
        datafusion_functions::encoding::encode(),
        [digest, lit("hex")],
    )))
}

fn exactly<const N: usize>(arguments: Vec<Expr>) -> Result<[Expr; N]> {
    let count = arguments.len();
    let wrong = |_| DataFusionError::Internal(format!("{count} arguments of {N}"));
    arguments.try_into().map_err(wrong)
}

/// IF, MOD and hash functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let all = FORMS.iter().map(|form| {
        Arc::new(ScalarUDF::new_from_impl(Rewritten {
            form,
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    });
    all.collect()
}

/// Whether a function can only be computed after it is replaced.
pub fn is_rewritten(name: &str) -> bool {
    FORMS.iter().any(|form| form.name == name)
}

struct Rewritten {
    form: &'static Form,
    signature: Signature,
}

impl Rewritten {
    fn types(&self, given: &[DataType]) -> Result<Types> {
        (self.form.types)(given).ok_or_else(|| {
            let list = given
                .iter()
                .map(sql_name)
                .collect::<Vec<String>>()
                .join(", ");
            let Form { name, shape, .. } = self.form;
            let error = SqlError::new(format!("function '{name}' does not accept ({list})"))
                .hint(format!("{}({shape})", name.to_uppercase()));
            DataFusionError::External(Box::new(error))
        })
    }
}

impl ScalarUDFImpl for Rewritten {
    fn name(&self) -> &str {
        self.form.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        // The planner hides errors from here; it asks for the type of the result next.
        Ok(self
            .types(given)
            .map_or_else(|_| given.to_vec(), |(types, _)| types))
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(self.types(given)?.1)
    }

    fn simplify(&self, arguments: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(ExprSimplifyResult::Simplified((self.form.form)(arguments)?))
    }

    fn short_circuits(&self) -> bool {
        self.form.is_lazy
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let error = format!("'{}' was not rewritten", self.form.name);
        Err(DataFusionError::Internal(error))
    }
}

impl fmt::Debug for Rewritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.form.name)
    }
}

impl PartialEq for Rewritten {
    fn eq(&self, other: &Rewritten) -> bool {
        self.form.name == other.form.name
    }
}

impl Eq for Rewritten {}

impl Hash for Rewritten {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.form.name.hash(state);
    }
}
