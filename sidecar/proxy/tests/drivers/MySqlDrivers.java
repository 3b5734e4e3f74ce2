import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.util.Properties;

/** What an application does with MariaDB Connector/J, told line by line: the same with a proxy in between as without. */
public class MySqlDrivers {
    private static final String LARGE =
            "SELECT a.n, REPEAT('x', 100) FROM of_jdbc a JOIN of_jdbc b WHERE b.n < 50";

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = connect()) {
            run(connection);
        }
    }

    private static Connection connect() throws SQLException {
        boolean encrypted = System.getenv("MYSQL_TLS").equals("require");
        Properties properties = new Properties();
        properties.setProperty("user", System.getenv("MYSQL_USER"));
        properties.setProperty("password", System.getenv("MYSQL_PASSWORD"));
        properties.setProperty("allowMultiQueries", "true");
        properties.setProperty("allowLocalInfile", "true");
        properties.setProperty("useServerPrepStmts", "true");
        properties.setProperty("useSSL", String.valueOf(encrypted));
        // The reference only: what is verified is the proxy's business.
        properties.setProperty("trustServerCertificate", String.valueOf(encrypted));
        return DriverManager.getConnection("jdbc:mariadb://" + System.getenv("MYSQL_HOST") + ":"
                + System.getenv("MYSQL_PORT") + "/" + System.getenv("MYSQL_DATABASE"), properties);
    }

    private static void run(Connection connection) throws Exception {
        Statement statement = connection.createStatement();
        values(connection);
        statement.execute("DROP TABLE IF EXISTS of_jdbc");
        statement.execute("CREATE TABLE of_jdbc (n INT PRIMARY KEY, s VARCHAR(30)) ENGINE=InnoDB");
        connection.setAutoCommit(false);
        statement.execute("INSERT INTO of_jdbc VALUES (1, 'a')");
        connection.rollback();
        System.out.println("rolled back " + text(statement, "SELECT COUNT(*) FROM of_jdbc"));
        StringBuilder rows = new StringBuilder("INSERT INTO of_jdbc VALUES (0, 'r0')");
        for (int row = 1; row < 1000; row++) {
            rows.append(",(").append(row).append(",'r").append(row).append("')");
        }
        System.out.println("inserted " + statement.executeUpdate(rows.toString()));
        connection.commit();
        connection.setAutoCommit(true);
        prepared(connection);
        results(statement);
        for (String wrong : new String[] {"SELECT nonsense", "INSERT INTO of_jdbc VALUES (1, 'again')", "SELEC 1",
                "SELECT * FROM absent", "LOAD DATA LOCAL INFILE 'absent' INTO TABLE of_jdbc"}) {
            state("error", statement, wrong);
        }
        statement.execute("SET time_zone = '+09:00'");
        System.out.println("setting " + text(statement, "SELECT @@time_zone"));
        large(connection);
        cancelled(statement);
        statement.execute("DROP TABLE of_jdbc");
    }

    private static void values(Connection connection) throws SQLException {
        String sql = "SELECT CAST(? AS SIGNED) * 7, ?, HEX(?), ? IS NULL, CAST(? AS DECIMAL(10, 3)), ? + 0e0";
        try (PreparedStatement prepared = connection.prepareStatement(sql)) {
            for (int round = 0; round < 2; round++) {
                prepared.setLong(1, 6 + round);
                prepared.setString(2, "Grüße 🙂");
                prepared.setBytes(3, new byte[] {0, (byte) 255, 39});
                prepared.setNull(4, Types.VARCHAR);
                prepared.setString(5, "1.250");
                prepared.setDouble(6, 2.5);
                try (ResultSet result = prepared.executeQuery()) {
                    result.next();
                    System.out.println("values " + result.getLong(1) + " " + result.getString(2) + " "
                            + result.getString(3) + " " + result.getInt(4) + " " + result.getBigDecimal(5) + " "
                            + result.getDouble(6));
                }
            }
        }
    }

    private static void prepared(Connection connection) throws SQLException {
        int total = 0;
        try (PreparedStatement prepared = connection.prepareStatement("SELECT n FROM of_jdbc WHERE n = ?")) {
            for (int row = 0; row < 20; row++) {
                prepared.setInt(1, row);
                try (ResultSet result = prepared.executeQuery()) {
                    result.next();
                    total += result.getInt(1);
                }
            }
        }
        System.out.println("prepared " + total);
        try (PreparedStatement batch = connection.prepareStatement("INSERT INTO of_jdbc VALUES (?, ?)")) {
            for (int row = 0; row < 100; row++) {
                batch.setInt(1, 5000 + row);
                batch.setString(2, row % 2 == 0 ? "Grüße" : null);
                batch.addBatch();
            }
            System.out.println("batch " + batch.executeBatch().length);
        }
    }

    private static void results(Statement statement) throws SQLException {
        statement.execute("DROP PROCEDURE IF EXISTS of_jdbc_twice");
        statement.execute("CREATE PROCEDURE of_jdbc_twice(IN n INT) BEGIN SELECT n; SELECT n * 2; END");
        for (String sql : new String[] {"SELECT 1; DO 0; SELECT 'two'", "CALL of_jdbc_twice(21)"}) {
            boolean rows = statement.execute(sql);
            while (rows || statement.getUpdateCount() != -1) {
                if (rows) {
                    try (ResultSet result = statement.getResultSet()) {
                        result.next();
                        System.out.println("result " + result.getString(1));
                    }
                } else {
                    System.out.println("count " + statement.getUpdateCount());
                }
                rows = statement.getMoreResults();
            }
        }
        statement.execute("DROP PROCEDURE of_jdbc_twice");
    }

    private static void large(Connection connection) throws SQLException {
        for (int size : new int[] {0, 100}) {
            long bytes = 0;
            try (PreparedStatement prepared = connection.prepareStatement(LARGE)) {
                prepared.setFetchSize(size);
                try (ResultSet result = prepared.executeQuery()) {
                    while (result.next()) {
                        bytes += result.getString(2).length();
                    }
                }
            }
            System.out.println("large, by " + size + ": " + bytes);
        }
    }

    private static void cancelled(Statement statement) throws Exception {
        Thread canceller = new Thread(() -> {
            try (Connection other = connect(); Statement look = other.createStatement()) {
                String sleeping = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(30)%' AND state = 'User sleep'";
                while (text(look, sleeping).equals("0")) { }
                // By a connection of the driver's own.
                statement.cancel();
            } catch (SQLException error) {
                System.out.println("not cancelled: " + error);
            }
        });
        canceller.start();
        state("cancelled", statement, "SELECT SLEEP(30), 'cancel me'");
        canceller.join();
        System.out.println(text(statement, "SELECT 'goes on'"));
        statement.setQueryTimeout(1);
        state("timed out", statement, "SELECT SLEEP(30), 'time out'");
        statement.setQueryTimeout(0);
    }

    private static void state(String what, Statement statement, String sql) {
        try {
            statement.execute(sql);
            System.out.println(what + " not");
        } catch (SQLException error) {
            System.out.println(what + " " + error.getErrorCode() + " " + error.getSQLState());
        }
    }

    private static String text(Statement statement, String sql) throws SQLException {
        try (ResultSet result = statement.executeQuery(sql)) {
            result.next();
            return result.getString(1);
        }
    }
}
