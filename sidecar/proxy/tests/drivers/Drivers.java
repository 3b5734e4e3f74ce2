import java.io.StringReader;
import java.io.StringWriter;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;
import org.postgresql.PGConnection;

/** What an application does with JDBC, told line by line: the same with a proxy in between as without. */
public class Drivers {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("user", System.getenv("PGUSER"));
        properties.setProperty("password", System.getenv("PGPASSWORD"));
        properties.setProperty("sslmode", System.getenv("PGSSLMODE"));
        // Prepared on the server at once.
        properties.setProperty("prepareThreshold", "1");
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/"
                + System.getenv("PGDATABASE");
        try (Connection connection = DriverManager.getConnection(url, properties)) {
            run(connection);
        }
    }

    private static void run(Connection connection) throws Exception {
        Statement statement = connection.createStatement();
        statement.execute("DROP TABLE IF EXISTS of_jdbc; CREATE TABLE of_jdbc (n int, s text)");
        connection.setAutoCommit(false);
        statement.execute("INSERT INTO of_jdbc VALUES (1, 'a')");
        connection.rollback();
        System.out.println("rolled back " + number(statement, "SELECT count(*) FROM of_jdbc"));
        connection.commit();
        StringBuilder rows = new StringBuilder();
        for (int row = 0; row < 1000; row++) {
            rows.append(row).append("\tr").append(row).append('\n');
        }
        PGConnection postgres = connection.unwrap(PGConnection.class);
        System.out.println("copied in " + postgres.getCopyAPI().copyIn("COPY of_jdbc FROM STDIN", new StringReader(rows.toString())));
        connection.commit();
        StringWriter copied = new StringWriter();
        postgres.getCopyAPI().copyOut("COPY of_jdbc TO STDOUT", copied);
        System.out.println("copied out " + copied.toString().length());
        connection.commit();
        connection.setAutoCommit(true);
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
                batch.setString(2, "Grüße");
                batch.addBatch();
            }
            System.out.println("batch " + batch.executeBatch().length);
        }
        state("error", statement, "SELECT 1 / 0");
        statement.execute("SET TIME ZONE 'Asia/Tokyo'");
        System.out.println("setting " + text(statement, "SHOW TimeZone"));
        connection.setAutoCommit(false);
        statement.setFetchSize(1000);
        long bytes = 0;
        try (ResultSet result = statement.executeQuery("SELECT repeat('x', 100) FROM generate_series(1, 50000)")) {
            while (result.next()) {
                bytes += result.getString(1).length();
            }
        }
        System.out.println("large " + bytes);
        connection.commit();
        connection.setAutoCommit(true);
        statement.setQueryTimeout(1);
        state("cancelled", statement, "SELECT pg_sleep(30)");
        statement.setQueryTimeout(0);
        statement.execute("DROP TABLE of_jdbc");
    }

    private static void state(String what, Statement statement, String sql) {
        try {
            statement.execute(sql);
            System.out.println(what + " not");
        } catch (SQLException error) {
            System.out.println(what + " " + error.getSQLState());
        }
    }

    private static String text(Statement statement, String sql) throws SQLException {
        try (ResultSet result = statement.executeQuery(sql)) {
            result.next();
            return result.getString(1);
        }
    }

    private static long number(Statement statement, String sql) throws SQLException {
        return Long.parseLong(text(statement, sql));
    }
}
