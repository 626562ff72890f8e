use proptest::prelude::*;

use super::*;
use crate::memory::Memory;

#[path = "../../tests/columns.rs"]
mod columns;

proptest! {
    /// Arguments and results have the same form, so that what was written can be read.
    #[test]
    fn columns_are_read_as_they_were_written(
        seed in any::<u64>(),
        rows in prop_oneof![Just(0_usize), 1_usize..100],
        in_bits in any::<bool>(),
    ) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let data_type = columns::data_type(&mut rng, 3);
        let given = columns::column(&mut rng, &data_type, rows);
        let flags = if in_bits { Flags::Bits } else { Flags::Bytes };
        let mut memory = Memory::new().unwrap();
        let arguments = Arguments::of(std::slice::from_ref(&given), flags).unwrap();
        arguments.write(&mut memory).unwrap();
        prop_assert!(arguments.bytes() <= memory.size());
        let read = super::columns(&memory, &[(data_type, Some(rows))], flags).unwrap();
        prop_assert_eq!(&read[0], &given);
    }

    /// Whatever a worker has written, it is an error or a column, and no panic.
    #[test]
    fn anything_in_the_memory_is_read_without_a_panic(
        seed in any::<u64>(),
        rows in 0_usize..50,
        in_bits in any::<bool>(),
    ) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let data_type = columns::data_type(&mut rng, 2);
        let given = columns::column(&mut rng, &data_type, rows);
        let flags = if in_bits { Flags::Bits } else { Flags::Bytes };
        let mut memory = Memory::new().unwrap();
        let arguments = Arguments::of(std::slice::from_ref(&given), flags).unwrap();
        arguments.write(&mut memory).unwrap();
        for _ in 0..rng.usize(1..6) {
            let at = rng.usize(HEADER_BYTES..arguments.bytes());
            memory.write(at, &[rng.u8(..)]);
        }
        if let Ok(read) = super::columns(&memory, &[(data_type, Some(rows))], flags) {
            prop_assert_eq!(read[0].len(), rows);
            // Reads every value.
            let shown = format!("{read:?}");
            prop_assert!(!shown.is_empty());
        }
    }
}
