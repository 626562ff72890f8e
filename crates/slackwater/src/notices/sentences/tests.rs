use super::*;

fn about(named: &[&str], placed: &[&str]) -> About {
    let placed = placed.iter().map(|name| name.to_string());
    let named = named.iter().enumerate();
    About {
        table: "t".to_string(),
        named: named
            .map(|(number, name)| (number, name.to_string()))
            .collect(),
        placed: placed.collect(),
        event_time: Some(Time {
            column: "ts".to_string(),
            delay_us: SECOND_US,
            counts: Some(("ms".to_string(), 3)),
        }),
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

#[test]
fn a_column_without_a_field_is_named_with_the_field_that_was_meant() {
    let about = about(
        &["userId", "ms", "e.Price", "e.size", "gone.a", "gone.b"],
        &[],
    );
    let noticed = Noticed {
        rows: 12,
        filled: [1].into(),
        fields: names(&["userid", "ms", "e", "e.price", "e.size"]),
        ..Noticed::default()
    };
    let text = about.empty_columns(&noticed).unwrap().text;
    // 'e.size' is a field, and NULL wherever it is.
    assert!(
        text.starts_with(
            "table 't': columns 'userId', 'e.Price', 'gone' are NULL in all of the 12 rows read"
        ),
        "{text}"
    );
    assert!(
        text.contains("did you mean 'userid', 'e.price'? the fields are: userid, ms"),
        "{text}"
    );
    let without_names = Noticed {
        fields: Vec::new(),
        ..noticed.clone()
    };
    assert_eq!(about.empty_columns(&without_names), None);
    let filled = Noticed {
        filled: [0, 1, 2, 4, 5].into(),
        ..noticed
    };
    assert_eq!(about.empty_columns(&filled), None);
}

#[test]
fn a_header_in_another_order_is_told_of_and_other_names_are_not() {
    let about = about(&[], &["a", "b", "c"]);
    let text = about.header(&names(&["A", "C", "b"])).unwrap().text;
    assert!(
        text.contains("column 'b' is number 2 in the declaration and number 3 in the header"),
        "{text}"
    );
    assert_eq!(about.header(&names(&["A", "b", "c"])), None);
    assert_eq!(about.header(&names(&["x", "y", "z"])), None);
    assert_eq!(about.header(&[]), None);
}

#[test]
fn a_time_in_another_unit_is_named_with_what_to_write() {
    // 2024-05-01 in seconds, read as milliseconds.
    let text = about(&[], &[]).odd_time("in.csv:1", 1_714_521_600_000).text;
    assert!(
        text.starts_with(
            "table 't': column 'ts': the event time 1970-01-20 20:15:21.6 at in.csv:1 is before 1980\n"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "TO_TIMESTAMP_LTZ(ms, 3) reads milliseconds: as TO_TIMESTAMP_LTZ(ms, 0) it is \
                       2024-05-01 00:00:00"
        ),
        "{text}"
    );
    // Milliseconds, read as seconds.
    let meant = counted("x", 0, 1_714_521_600_000_000_000);
    assert_eq!(
        meant,
        Some(("TO_TIMESTAMP_LTZ(x, 3)".to_string(), 1_714_521_600_000_000))
    );
    // 2286 is no slip of the unit.
    assert_eq!(counted("x", 3, 9_999_999_999_999_000), None);
    let text = about(&[], &[])
        .odd_time("in.csv:7", 9_999_999_999_999_000)
        .text;
    assert!(text.contains("is after 2099"), "{text}");
}

#[test]
fn late_rows_are_explained_by_the_jump_or_by_their_disorder() {
    let about = about(&[], &[]);
    let moved = |from_us, to_us| Moved {
        place: "in.csv:17".to_string(),
        from_us,
        to_us,
    };
    let start = 1_714_521_600 * SECOND_US;
    let later = 3_660_681_600 * SECOND_US;
    let jumped = Noticed {
        jump: Some(moved(Some(start), later)),
        first: Some(moved(None, start)),
        behind_us: later - start,
        ..Noticed::default()
    };
    let text = about.late(&jumped, 99, 100).text;
    assert!(
        text.starts_with(
            "table 't': 99 of 100 rows were late (99 %): the watermark jumped by 61.7 years at \
             in.csv:17, from \
             2024-04-30 23:59:59 to 2085-12-31 23:59:59"
        ),
        "{text}"
    );
    assert!(text.contains("make it NULL"), "{text}");
    let disordered = Noticed {
        // A gap in the data, and no record that is wrong.
        jump: Some(moved(Some(start), start + 2 * 3_600 * SECOND_US)),
        behind_us: 3 * 3_600 * SECOND_US + 1,
        ..jumped.clone()
    };
    let text = about.late(&disordered, 50, 100).text;
    assert!(
        text.contains(
            "rows came up to 4 hours after rows with larger event times, but the \
                           watermark waits only 1 s"
        ),
        "{text}"
    );
    assert!(
        text.contains("WATERMARK FOR ts AS ts - INTERVAL '4' HOUR"),
        "{text}"
    );
    let descending = Noticed {
        jump: None,
        ..jumped
    };
    let text = about.late(&descending, 99, 100).text;
    assert!(
        text.contains("the first row, at in.csv:17, has the largest event time"),
        "{text}"
    );
}

#[test]
fn spans_are_short() {
    assert_eq!(span(0), "0 us");
    assert_eq!(span(1_500), "1.5 ms");
    assert_eq!(span(SECOND_US), "1 s");
    assert_eq!(span(90 * SECOND_US), "1.5 minutes");
    assert_eq!(span(DAY_US), "1 day");
    assert_eq!(round_up(DAY_US + 1), 2 * DAY_US);
    assert_eq!(interval(2 * DAY_US), "'2' DAY");
    assert_eq!(interval(250_000), "'0.25' SECOND");
}
