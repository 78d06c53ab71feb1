//! Runs the tests of a suite on one store, in a module with the store's name.

/// `on!(memory Memory; part::test, …)`: each test is an async function that takes the store's kind.
macro_rules! on {
    ($store:ident $kind:ident; $($part:ident :: $name:ident),* $(,)?) => {
        mod $store {
            $(
                #[tokio::test]
                async fn $name() {
                    let test = super::$part::$name(leasehold_test::Kind::$kind);
                    leasehold_test::within(stringify!($name), test).await;
                }
            )*
        }
    };
}

/// As `on!`, for mutexes of one format, fenced or not.
macro_rules! on_flavour {
    (
        $wire:ident $fenced:literal;
        $store:ident $kind:ident;
        $($part:ident :: $name:ident),* $(,)?
    ) => {
        mod $store {
            $(
                #[tokio::test]
                async fn $name() {
                    let test = super::$part::$name(leasehold_test::Kind::$kind);
                    let test = leasehold_test::flavoured(leasehold::Wire::$wire, $fenced, test);
                    leasehold_test::within(stringify!($name), test).await;
                }
            )*
        }
    };
}

/// As `on!`, for tests that make their own runtimes.
macro_rules! on_threads {
    ($store:ident $kind:ident; $($part:ident :: $name:ident),* $(,)?) => {
        mod $store {
            $(
                #[test]
                fn $name() {
                    let test = || super::$part::$name(leasehold_test::Kind::$kind);
                    leasehold_test::in_time(stringify!($name), test);
                }
            )*
        }
    };
}
